"""Configurations that reach a target, as people read them."""

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.engines.adapter import Command
from draftmark.planner import Candidate, Reach, Solution
from draftmark.report.plan import reason_table
from draftmark.report.quantities import count, share, size


def solve(found: Solution, command: Command | None) -> Iterator[RenderableType]:
    """The target, the configurations ranked, the one to launch first with its command line."""
    for conflict in found.asked.conflicts:
        yield Text(f"As asked it cannot start: {conflict}.", style="bold red")
    yield target_text(found)
    if found.shown:
        yield candidates_table(found.shown)
    if found.short:
        yield Text(short_text(found))
    if command is not None:
        yield Text("Launch this first:", style="bold")
        yield Text(shell(command), no_wrap=True, overflow="ignore")
    if found.drafted is not None:
        yield drafted_text(found.drafted)
    if found.nearest is not None:
        yield nearest_text(found.nearest)
    if found.otherwise:
        yield Text(found.otherwise, style="bold")
    yield reason_table(found.asked)
    for note in (*found.notes, *found.asked.notes):
        yield Text(f"Note: {note}.")
    for flag in found.asked.not_understood:
        yield Text(f"Not understood, and not in the prediction: {flag}", style="bold")


def document(found: Solution, command: Command | None) -> dict[str, Any]:
    """What the text says, for programs: the solution, what each candidate's columns show, and the command to launch."""
    fields: dict[str, Any] = msgspec.to_builtins(found)
    for shown, one in zip(fields["candidates"], found.candidates, strict=True):
        shown["fits"], shown["risk"], shown["headroom"] = one.probability, one.plan.worst_risk, one.headroom
        shown["reaches"], shown["safe"] = one.reaches, one.good
    fields["command"] = None if command is None else msgspec.to_builtins(command)
    return fields


def short_text(found: Solution) -> str:
    """How many configurations were tried and fall short."""
    if not found.shown:
        return "1 configuration was tried." if found.short == 1 else f"{found.short} configurations were tried."
    others = "1 other was tried and does" if found.short == 1 else f"{found.short} others were tried and do"
    return f"{others} not reach it."


def target_text(found: Solution) -> Text:
    """What is asked, and whether the configuration as given has it."""
    target, reach = found.target, found.asked.reach
    asked = (
        f"Target: {target.concurrency} x ({count(target.context)} tokens of context + {count(target.output)} of output)"
    )
    if reach is None:
        return Text(asked, style="bold")
    takes = f"it takes {amount(reach, reach.needed)}"
    if reach.pools > 1:
        ranks = f"each of {reach.pools} data-parallel ranks serves {reach.concurrency} of them"
        takes = f"{ranks}, which take {amount(reach, reach.needed)} of its pool"
    has = f"As asked, {'each' if reach.pools > 1 else 'the'} pool has {amount(reach, reach.available)}"
    fits = f"it fits with probability {share(reach.probability)}"
    if reach.requests < reach.concurrency:
        fits = f"it does not fit, for at most {count(reach.requests)} requests run at once"
    return Text(f"{asked}; {takes}, pages and draft reserve included.\n{has}: {fits}.", style="bold")


def amount(reach: Reach, number: int) -> str:
    """So much in the engine's unit, and what that is in all where ranks hold different tokens."""
    if reach.context_ranks == 1:
        return f"{count(number)} {reach.unit}"
    held = count(number * reach.context_ranks)
    return f"{count(number)} {reach.unit} as the engine prints them, {held} over {reach.context_ranks} context ranks"


def candidates_table(candidates: tuple[Candidate, ...]) -> Table:
    """Best first: changes, predicted tokens, how sure, headroom, risk, cost."""
    title = "Configurations, best first" if candidates[0].good else "Configurations that reach it, but not safely"
    table = Table(title=title, title_justify="left")
    for heading, right in (("changes", False), ("pool tokens", True), ("fits", True), ("headroom", True)):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    table.add_column("risk", justify="right")
    table.add_column("cost", overflow="fold")
    for one in candidates:
        changes = "\n".join(f"{change.flag} {change.value or ''}".strip() for change in one.changes)
        table.add_row(
            changes or "none",
            pool(one),
            share(one.probability),
            size(one.headroom),
            share(one.plan.worst_risk),
            "; ".join(one.costs) or "none",
        )
    return table


def nearest_text(one: Candidate) -> Text:
    """How near what starts safely comes to the target."""
    reach = one.plan.reach
    words = shlex.join(word for change in one.changes for word in (change.flag, change.value) if word)
    how = f"with {words}" if words else "as asked"
    part = share(min(reach.available / reach.needed, 1.0)) if reach is not None else "–"
    limit = (
        f", for at most {reach.requests} requests" if reach is not None and reach.requests < reach.concurrency else ""
    )
    return Text(f"The nearest that starts safely holds {part} of it{limit}: {how}.")


def drafted_text(one: Candidate) -> Text:
    """That the checkpoint's draft layers fit beside the target."""
    words = shlex.join(word for change in one.changes for word in (change.flag, change.value) if word)
    sure = f"fits {share(one.probability)}, risk {share(one.plan.worst_risk)}"
    return Text(
        "The checkpoint's own draft layers fit beside it, and speed up decoding where their drafts are accepted: add "
        f"{words} (pool {count(one.plan.pool.tokens)} tokens, {sure})."
    )


def pool(one: Candidate) -> str:
    """The pool as the engine prints it; below it what that is in all, where ranks hold different tokens."""
    lines = [count(one.plan.pool.tokens)]
    if one.plan.held != one.plan.pool.tokens:
        lines.append(f"context: {count(one.plan.held)}")
    if one.plan.pools > 1:
        lines.append(f"x {one.plan.pools} ranks")
    return "\n".join(lines)


def shell(command: Command) -> str:
    """A command line to paste."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in command.environment]
    return " ".join([*assignments, shlex.join(command.argv)])
