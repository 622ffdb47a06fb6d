"""What the self-test asks of the client. Pure."""

from typing import Final

from draftmark.selftest.check import Report

TTFT: Final = 0.001
"""Seconds that a median TTFT may be off with one stream."""
TTFT_LOADED: Final = 0.005
"""Seconds that the mean TTFT may be off with 64 streams."""
RATE: Final = 0.005
"""Share by which a median decode rate may be off."""
BARS: Final = "1 ms of TTFT (5 ms in the mean of 64 streams), 0.5 % of decode rate, and every token counted"


def failures(report: Report) -> tuple[str, ...]:
    """What was not met, in words; empty where all was."""
    lines = []
    for shape in report.shapes:
        if not shape.exact:
            lines.append(f"{shape.shape}: tokens were counted wrongly")
        if shape.ttft_median > TTFT:
            lines.append(f"{shape.shape}: TTFT is off by {shape.ttft_median * 1000:.2f} ms in the median")
        if shape.rate_median is not None and shape.rate_median > RATE:
            lines.append(f"{shape.shape}: the decode rate is off by {shape.rate_median:.2%} in the median")
    if report.load.ttft_mean > TTFT_LOADED:
        lines.append(f"{report.load.streams} streams: TTFT is off by {report.load.ttft_mean * 1000:.1f} ms in the mean")
    return tuple(lines)
