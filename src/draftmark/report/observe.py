"""A start that was taken in from its log, for the terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from draftmark.report.serve import ledgers, pools
from draftmark.serve.observe import Observed


def observed(found: Observed) -> Iterator[RenderableType]:
    """Its ledger and pool, predicted beside observed, and what becomes of it."""
    asked = found.plan.configuration
    version = f" {asked.version}" if asked.version is not None else ""
    gpus = f"{found.plan.gpus} x {found.plan.device.name}"
    yield Text(f"{found.plan.model} with {asked.engine}{version} on {gpus}", style="bold")
    yield ledgers(found.plan.ledgers, found.ledgers)
    yield pools(found.plan.pool, found.pool)
    for flag in found.plan.not_understood:
        yield Text(f"not in the prediction: {flag}")
    kept = "was kept before" if found.again else "is kept"
    yield Text(f"It {kept} as trial {found.trial}; plans for this engine and GPU learn from it.")
