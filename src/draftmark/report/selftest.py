"""The self-test as a table: what the client measured against what happened."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.report.quantities import UNKNOWN, count, duration, size
from draftmark.selftest.check import LoadCheck, Report, ShapeCheck
from draftmark.selftest.verdict import BARS, failures


def selftest(report: Report) -> RenderableType:
    """A row a shape, the load below, and the verdict."""
    table = Table()
    for name in ("stream", "requests", "tokens", "TTFT error", "worst", "decode rate error", "worst"):
        table.add_column(name, justify="left" if name == "stream" else "right")
    for shape in report.shapes:
        table.add_row(*_cells(shape))
    failed = failures(report)
    verdict = [Text(f"failed: {line}", style="red") for line in failed] or [Text(f"All within {BARS}.")]
    return Group(table, Text(_load(report.load)), *verdict)


def _cells(shape: ShapeCheck) -> tuple[str, ...]:
    counted = "exact" if shape.exact else "WRONG"
    rate = (UNKNOWN, UNKNOWN)
    if shape.rate_median is not None and shape.rate_worst is not None:
        rate = (f"{shape.rate_median:.2%}", f"{shape.rate_worst:.2%}")
    else:
        counted = "not stated"
    return (
        shape.shape, str(shape.requests), counted, duration(shape.ttft_median), duration(shape.ttft_worst), *rate,
    )  # fmt: skip


def _load(load: LoadCheck) -> str:
    p99 = f", p99 {duration(load.ttft_p99)}" if load.ttft_p99 is not None else ""
    return (
        f"{load.streams} streams at 3,200 chunks/s: TTFT error {duration(load.ttft_mean)} in the mean{p99}.\n"
        f"Unpaced: {count(load.requests_per_second)} requests/s, {count(load.chunks_per_second)} chunks/s, with the"
        f" server on the same machine. Peak memory {size(load.peak_memory)}."
    )
