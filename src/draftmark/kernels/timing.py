"""Times on a GPU: medians of graph replays over input sets that together exceed the cache; and the two ceilings."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

WARM_UP_SECONDS: Final = 0.1
"""An idle GPU's clocks take some milliseconds to rise."""
REPLAYS: Final = 41


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds for one call: the median of replays, and the fastest and slowest tenth."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """What this GPU reached in this run: bytes copied a second (read + written), and bf16 operations a second."""

    bandwidth: float
    matrix_rate: float


def time_calls(calls: Sequence[Callable[[], object]], replays: int = REPLAYS) -> Timing:
    """Time one call: all `calls` (the same work on different inputs) are captured in one graph and replayed."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return summary([seconds / len(calls) for seconds in time_replays(graph.replay, replays)])


def time_replays(replay: Callable[[], object], replays: int) -> list[float]:
    """Seconds of each of `replays` calls, once the clocks are up, by events on the device."""
    started = time.monotonic()
    while time.monotonic() - started < WARM_UP_SECONDS:
        replay()
        torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]  # type: ignore[no-untyped-call]
    marks[0].record()
    for mark in marks[1:]:
        replay()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1000 for before, after in itertools.pairwise(marks)]


def summary(seconds: list[float]) -> Timing:
    """Median and tenths."""
    ordered = sorted(seconds)
    tenth = len(ordered) // 10
    return Timing(median=statistics.median(ordered), low=ordered[tenth], high=ordered[-1 - tenth])


def measure_ceilings() -> Ceilings:
    """Copy 2 GiB, and multiply 8192-square bf16 matrices of random numbers (zeros would run faster than data does)."""
    source = torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = summary(time_replays(lambda: target.copy_(source), REPLAYS))
    side = 8192
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    multiply = summary(time_replays(lambda: torch.mm(left, right, out=product), REPLAYS))
    return Ceilings(bandwidth=2 * source.numel() / copy.median, matrix_rate=2 * side**3 / multiply.median)
