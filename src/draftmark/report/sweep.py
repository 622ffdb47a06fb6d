"""A sweep as a table: asked and counted tokens, times, rates, and what limits them."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.observation import ServerState
from draftmark.physics.figures import Figures, figures
from draftmark.physics.statistics import Median
from draftmark.report.quantities import UNKNOWN, count, duration, per_second, share
from draftmark.sample import Point
from draftmark.sweep import Sending, Started, Sweep
from draftmark.sweep.fit import Refusal

_COLUMNS: Final = (
    "asked",
    "actual",
    "TTFT",
    "prefill tok/s",
    "decode tok/s",
    "decode wall",
    "step",
    "±",
    "tokens/step",
    "n",
    "note",
)


def sweep(result: Sweep) -> RenderableType:
    """The whole result."""
    return points(result.points, result.refusals)


def points(measured: Sequence[Point], refusals: Sequence[Refusal] = ()) -> RenderableType:
    """One row a point; what limits or invalidates it, and depths that were not sent, in words under the table."""
    streams = any(point.concurrency > 1 for point in measured)
    table = Table()
    for name in ("streams", *_COLUMNS) if streams else _COLUMNS:
        table.add_column(name, justify="left" if name == "note" else "right", no_wrap=True)
    notes: dict[str, int] = {}
    for point in measured:
        marks = [f"({notes.setdefault(flag, len(notes) + 1)})" for flag in point.flags]
        if point.invalid is not None:
            marks.insert(0, f"invalid ({notes.setdefault(point.invalid, len(notes) + 1)})")
        table.add_row(
            *([str(point.concurrency)] if streams else []), *_cells(point), " ".join(marks), style=_style(point)
        )
    lines = [f"({number}) {note}" for note, number in notes.items()] + [_refusal(refused) for refused in refusals]
    return Group(*([table] if measured else []), *(Text(line) for line in lines))


def _style(point: Point) -> str:
    return "red" if point.invalid else "dim" if point.open else ""


def _cells(point: Point) -> list[str]:
    shown = figures(point)
    counted = shown.prompt_tokens
    if counted is None and point.samples:
        counted = point.samples[-1].prompt_tokens
    return [
        count(point.asked),
        count(counted),
        duration(_value(shown.ttft)),
        per_second(_value(shown.prefill_rate)),
        _rate(shown),
        duration(_value(shown.decode_time)),
        duration(_value(shown.step_time)),
        share(shown.step_time.half_width if shown.step_time else None),
        f"{shown.tokens_a_step.value:.2f}" if shown.tokens_a_step else UNKNOWN,
        str(len(point.measured)),
    ]


def _value(estimate: Median | None) -> float | None:
    return None if estimate is None else estimate.value


def _rate(shown: Figures) -> str:
    if shown.decode_rate is None and shown.decode_rate_bounds is not None:
        low, high = shown.decode_rate_bounds
        return f"{per_second(low)} to {per_second(high)}"
    return per_second(_value(shown.decode_rate))


def _refusal(refused: Refusal) -> str:
    fits = f"the largest that fits is {refused.largest:,}" if refused.largest is not None else "no depth fits"
    streams = f" x {refused.concurrency}" if refused.concurrency > 1 else ""
    return f"{refused.asked:,} tokens{streams} not sent: {refused.reason}; {fits}"


def started(event: Started) -> RenderableType:
    """What is measured, how it is spoken to, and what it holds."""
    dialect = event.dialect
    how = "token ids" if event.sends_ids else "text"
    return Text(
        f"{server(event.state)}\n{dialect.model} over {dialect.route}; prompts are {how} counted by {event.counter};"
        f" output counted by {dialect.counted_by}; seed {event.seed}"
    )


def server(state: ServerState) -> str:
    """The server on one line."""
    parts = [state.url, " ".join(part for part in (state.engine, state.version) if part) or "an OpenAI-compatible API"]
    if state.device:
        parts.append(state.device)
    if state.context is not None:
        parts.append(f"context {state.context:,}")
    parts.append(f"pool {state.pool_tokens:,} tokens" if state.pool_tokens is not None else "pool not stated")
    return ", ".join(parts)


def sending(event: Sending) -> str:
    """What is under way."""
    streams = f" x {event.concurrency}" if event.concurrency > 1 else ""
    expected = f", first token expected after {duration(event.predicted)}" if event.predicted is not None else ""
    return f"{event.asked:,} tokens{streams}, repeat {event.repeat}{expected}"
