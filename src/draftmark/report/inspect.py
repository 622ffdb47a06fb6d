"""A running server for the terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.report.quantities import UNKNOWN, count, size
from draftmark.report.serve import ledgers, pools
from draftmark.serve.inspect import Inspection


def inspection(found: Inspection) -> Iterator[RenderableType]:
    """Engine and limits, pool, ledger of the worst rank, GPUs."""
    state = found.state
    engine = " ".join(part for part in (state.engine or "an engine that is not known", state.version) if part)
    yield Text(f"{state.url}: {engine}, {', '.join(state.models)}", style="bold")
    limits = Table()
    for heading in ("context", "pool", "page", "chunk", "most requests", "draft tokens"):
        limits.add_column(heading, justify="right")
    pool = found.pool.tokens if found.pool is not None else None
    limits.add_row(
        *(count(value) for value in (state.context, pool, state.page, state.chunk, state.max_running)),
        count(state.draft_tokens),
    )
    yield limits
    yield pools(None, found.pool)
    if found.ledgers:
        yield ledgers((), found.ledgers)
        yield Text(f"headroom of the worst rank: {size(found.ledgers[0].free)}")
    for seen in state.observations:
        value = size(float(seen.value)) if seen.unit == "bytes" and not isinstance(seen.value, str) else seen.value
        yield Text(f"{seen.quantity}: {value if value is not None else UNKNOWN}")
    for gpu in found.gpus:
        yield Text(f"GPU {gpu.index} ({gpu.name}): {size(gpu.used)} of {size(gpu.total)} in use")
