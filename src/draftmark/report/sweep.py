"""A sweep as a table: asked and counted tokens, times, rates, and what limits them."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from draftmark.errors import one_line
from draftmark.observation import ServerState
from draftmark.physics.figures import Figures, figures
from draftmark.physics.statistics import Median
from draftmark.report.quantities import UNKNOWN, count, duration, per_second, share
from draftmark.report.rows import Row, Rows
from draftmark.sample import Point
from draftmark.sweep import Asking, Sending, Started, Sweep
from draftmark.sweep.fit import Refusal

SMALLEST: Final = 0.0005
"""Half-width below which an interval is not shown."""
LARGEST: Final = 9.99
"""Half-width above which it says no more than that nothing is known."""


def sweep(result: Sweep) -> RenderableType:
    """The whole result."""
    return points(result.points, result.refusals)


def points(measured: Sequence[Point], refusals: Sequence[Refusal] = ()) -> RenderableType:
    """One row a point; what limits or invalidates it, and depths that were not sent, in words under the table."""
    columns = _columns(measured)
    notes: dict[str, int] = {}
    rows = []
    for point in measured:
        marks = [f"({notes.setdefault(flag, len(notes) + 1)})" for flag in point.flags]
        if point.invalid is not None:
            marks.insert(0, f"invalid ({notes.setdefault(point.invalid, len(notes) + 1)})")
        shown = figures(point)
        cells = (*(cell(point, shown) for cell in columns.values()), " ".join(marks))
        rows.append(Row(cells=cells, style=_style(point)))
    lines = [f"({number}) {note}" for note, number in notes.items()] + [_refusal(refused) for refused in refusals]
    table = [Rows((*columns, "note"), rows)] if measured else []
    return Group(*table, *(Text(line) for line in lines))


_Cell = Callable[[Point, Figures], str]


def _columns(measured: Sequence[Point]) -> dict[str, _Cell]:
    """Headings and cells; those of load only where there is any. ± is the half-width of a 95 % interval."""
    streams = any(point.concurrency > 1 for point in measured)
    rates = any(point.rate is not None for point in measured)
    columns: dict[str, _Cell | None] = {
        "streams": (lambda point, _: str(point.concurrency)) if streams else None,
        "requests/s": (lambda point, _: UNKNOWN if point.rate is None else f"{point.rate:g}") if rates else None,
        "asked": lambda point, _: count(point.asked),
        "actual": _actual,
        "TTFT": lambda _, shown: duration(_value(shown.ttft)),
        "from due": (lambda _, shown: duration(_value(shown.ttft_due))) if rates else None,
        "p90": (lambda _, shown: duration(shown.ttft_p90)) if rates else None,
        "prefill tok/s": lambda _, shown: per_second(_value(shown.prefill_rate)),
        "decode tok/s": lambda _, shown: _rate(shown),
        "all tok/s": (lambda _, shown: _spread(shown.total_rate, per_second)) if streams else None,
        "decode wall": lambda _, shown: duration(_value(shown.decode_time)),
        "step": lambda _, shown: _spread(shown.step_time, duration),
        "tokens/step": lambda _, shown: _spread(shown.tokens_a_step, lambda value: f"{value:.2f}"),
        "n": lambda point, _: str(len(point.measured)),
    }
    return {name: cell for name, cell in columns.items() if cell is not None}


def _style(point: Point) -> str:
    return "red" if point.invalid else "dim" if point.open else ""


def _actual(point: Point, shown: Figures) -> str:
    if shown.prompt_tokens is None and point.samples:
        return count(point.samples[-1].prompt_tokens)
    return count(shown.prompt_tokens)


def _value(estimate: Median | None) -> float | None:
    return None if estimate is None else estimate.value


def _spread(estimate: Median | None, form: Callable[[float], str]) -> str:
    """The median with the half-width of its interval; alone where there is no interval, or none to speak of."""
    if estimate is None:
        return UNKNOWN
    if estimate.half_width is None or estimate.half_width < SMALLEST:
        return form(estimate.value)
    if estimate.half_width > LARGEST:
        return f"{form(estimate.value)} ±>{share(LARGEST)}"
    return f"{form(estimate.value)} ±{share(estimate.half_width)}"


def _rate(shown: Figures) -> str:
    if shown.decode_rate is None and shown.decode_rate_bounds is not None:
        low, high = shown.decode_rate_bounds
        return f"{per_second(low)} to {per_second(high)}"
    return _spread(shown.decode_rate, per_second)


def _refusal(refused: Refusal) -> str:
    fits = f"the largest that fits is {refused.largest:,}" if refused.largest is not None else "no depth fits"
    streams = f" x {refused.concurrency}" if refused.concurrency > 1 else ""
    return f"{refused.asked:,} tokens{streams} not sent: {refused.reason}; {fits}"


def started(event: Started) -> RenderableType:
    """What is measured, how it is spoken to, and what it holds."""
    dialect = event.dialect
    how = "token ids" if event.sends_ids else "text"
    return Text(
        f"{server(event.state)}\n{one_line(dialect.model)} over {dialect.route};"
        f" prompts are {how} counted by {event.counter}; output counted by {dialect.counted_by}; seed {event.seed}"
    )


def server(state: ServerState) -> str:
    """The server on one line."""
    parts = [state.url, " ".join(part for part in (state.engine, state.version) if part) or "an OpenAI-compatible API"]
    if state.device:
        parts.append(state.device)
    if state.context is not None:
        parts.append(f"context {state.context:,}")
    if state.draft_tokens:
        parts.append(f"speculation with {state.draft_tokens} draft tokens")
    ranks = f" on each of {state.ranks} ranks" if state.ranks > 1 else ""
    pool = f"pool {state.pool_tokens:,} tokens{ranks}" if state.pool_tokens is not None else "pool not stated"
    parts.append(pool)
    return ", ".join(parts)


def asking(event: Asking) -> str:
    """What is waited for before anything is measured."""
    return f"Asking {event.what}; giving up after {duration(event.seconds)}"


def sending(event: Sending) -> str:
    """What is under way."""
    streams = f" x {event.concurrency}" if event.concurrency > 1 else ""
    if event.rate is not None:
        streams = f" at {event.rate:g} requests/s, {event.requests} that come over {duration(event.lasts)}"
    expected = ""
    if event.predicted is not None:
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() + event.predicted))
        expected = f", first token expected after {duration(event.predicted)}, at {clock}"
    return f"{event.asked:,} tokens{streams}, repeat {event.repeat}{expected}"
