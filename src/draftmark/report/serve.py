"""A start of an engine for the terminal: its phases, its ledger beside the predicted one, and how it ended."""

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.ledger import Ledger, Pool, compare
from draftmark.report.quantities import UNKNOWN, bandwidth, count, duration, signed_size, size
from draftmark.serve import Activity, Event, Note, PhaseEntered, Started
from draftmark.serve.records import Record
from draftmark.trial import Crashed, Outcome, OutOfMemory, Ready, Stopped, TimedOut, Trial


def lasting(event: Event) -> str | None:
    """What of an event stays on the screen; None where nothing does."""
    if isinstance(event, Started):
        return f"$ {shlex.join(event.argv)}\nprocess {event.pid}, log {event.log}"
    if isinstance(event, PhaseEntered):
        return f"{event.at:8.1f} s  {event.phase}"
    return f"note: {event.text}" if isinstance(event, Note) else None


def passing(event: Event) -> str | None:
    """What of an event is shown until the next one; None where nothing is."""
    if not isinstance(event, Activity):
        return None
    left = f", about {duration(event.remaining)} left" if event.remaining is not None else ""
    share = f" {event.done:.0%}" if event.done is not None else ""
    rate = f" at {bandwidth(event.rate)}" if event.rate is not None else ""
    return f"{event.phase}{share}{rate}{left}: {event.text}"


def trial(kept: Trial) -> Group:
    """How a start ended, and what it made of the memory; nothing of that where it stated nothing."""
    pieces: list[RenderableType] = [outcome(kept.outcome)]
    if kept.observed:
        pieces.append(ledgers(kept.predicted, kept.observed))
    if kept.pool is not None or isinstance(kept.outcome, Ready):
        pieces.append(pools(kept.predicted_pool, kept.pool))
    return Group(*pieces)


def ledgers(predicted: Sequence[Ledger], observed: Sequence[Ledger]) -> Table:
    """The worst rank's ledger, predicted beside observed. What neither explains has a row of its own."""
    table = Table(title="memory of the worst rank")
    table.add_column("account")
    for heading in ("predicted", "observed", "difference"):
        table.add_column(heading, justify="right")
    before, after = (side[0] if side else None for side in (predicted, observed))
    if before is not None and after is not None:
        for row in compare(before, after):
            table.add_row(row.account, size(row.predicted), size(row.observed), signed_size(row.delta))
    else:
        for entry in side.entries if (side := before or after) is not None else ():
            shown = (size(entry.bytes), UNKNOWN) if before is not None else (UNKNOWN, size(entry.bytes))
            table.add_row(entry.account, *shown, UNKNOWN)
    table.add_section()
    capacities = [side.capacity if side is not None else None for side in (before, after)]
    table.add_row("capacity", *(size(capacity) for capacity in capacities), "")
    return table


def pools(predicted: Pool | None, observed: Pool | None) -> Text:
    """The pool in tokens, predicted with its interval beside observed."""
    parts = []
    if predicted is not None:
        interval = f" ({count(predicted.low)} to {count(predicted.high)})" if predicted.low != predicted.high else ""
        parts.append(f"predicted {count(predicted.tokens)} tokens{interval}")
    if observed is not None:
        held = f", {size(observed.bytes)}" if observed.bytes is not None else ""
        parts.append(f"observed {count(observed.tokens)} tokens{held}")
    if predicted is not None and observed is not None and observed.tokens:
        parts.append(f"prediction off by {(predicted.tokens - observed.tokens) / observed.tokens:+.1%}")
    return Text(f"pool: {', '.join(parts) or 'not stated'}")


def outcome(ended: Outcome) -> Text:
    """How a start ended, with the allocator's numbers where memory ran out."""
    if isinstance(ended, Ready):
        return Text(f"ready after {duration(ended.after)}", style="bold green")
    if isinstance(ended, Stopped):
        return Text(f"stopped after {duration(ended.after)}")
    if isinstance(ended, TimedOut):
        stack = f"\n{ended.stack}" if ended.stack is not None else ""
        return Text(f"no progress in phase {ended.phase} for {duration(ended.after)}{stack}", style="bold red")
    if isinstance(ended, Crashed):
        how = ended.signal or f"exit code {count(ended.exit_code)}"
        return Text(f"ended by itself in phase {ended.phase} ({how}): {ended.message}", style="bold red")
    return _out_of_memory(ended)


def _out_of_memory(ended: OutOfMemory) -> Text:
    numbers = (
        ("tried", ended.tried),
        ("free", ended.free),
        ("allocated", ended.allocated),
        ("reserved but unallocated", ended.reserved_unallocated),
        ("private pools", ended.private_pools),
    )
    known = ", ".join(f"{name} {size(value)}" for name, value in numbers if value is not None)
    return Text(f"out of memory in phase {ended.phase}: {known or ended.message}", style="bold red")


def ready(record: Record, *, detached: bool = False) -> Text:
    """Where a server answers, and how it is ended."""
    if detached:
        return Text(f"{record.url}  (left running; `draftmark stop {record.name}` ends it)")
    return Text(f"{record.url}  (Ctrl-C ends it; left running, `draftmark stop {record.name}` does)")


def running(records: Sequence[Record]) -> Table:
    """Engines that Draftmark started and that still run."""
    table = Table()
    for heading in ("name", "process", "url", "model", "log"):
        table.add_column(heading, overflow="fold")
    for record in records:
        table.add_row(record.name, str(record.pid), record.url, record.configuration.model, record.log)
    return table
