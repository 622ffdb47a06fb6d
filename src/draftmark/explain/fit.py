"""Why decode costs what it costs: the part that is there at any depth, and the part that grows with it.

A step's time is fitted as a + b * depth. `a` holds reading the weights, launching, sampling and the network; `b` is
reading (and computing on) the cache. With the cache's bytes per token, 1/b is a bandwidth, which can be held against
what the memory can do.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from draftmark.explain.explanation import NOISY, Ceiling, DepthRow, Explanation, Reads
from draftmark.explain.findings import findings
from draftmark.finding import Confidence
from draftmark.physics.figures import figures
from draftmark.physics.fits import Coefficient, Line, fit_line, fit_parabola
from draftmark.physics.roofline import effective_bandwidth, memory_time
from draftmark.sample import Point
from draftmark.units import Bytes, Seconds, Tokens


def explain(points: Sequence[Point], *, reads: Reads | None = None, ceiling: Ceiling | None = None) -> Explanation:
    """Explain the decode curve of valid points; of several concurrencies, the one with the most depths.

    Points of requests at a rate are left out: how many of them decoded together is not known.

    Raises:
        ValueError: no point of streams is valid and has two timed output tokens.
    """
    reads = reads or Reads()
    valid = [point for point in points if point.invalid is None]
    usable = [(point, m) for point in valid if point.rate is None and (m := _Medians.of(point)) is not None]
    if not usable:
        raise ValueError(_why_none(valid))
    concurrency = Counter(point.concurrency for point, _ in usable).most_common(1)[0][0]
    chosen = sorted((p for p in usable if p[0].concurrency == concurrency), key=lambda p: p[0].asked)
    quiet = [p for p in chosen if not p[0].noisy]
    chosen = quiet if len(quiet) >= _ENOUGH else chosen
    medians = [m for _, m in chosen]
    step = fit_line([m.depth for m in medians], [m.step for m in medians])
    per_token = fit_line([m.depth for m in medians], [m.per_token for m in medians])
    cold = [(m.prompt, m.ttft) for point, m in chosen if point.mode == "cold" and m.ttft is not None]
    noise = _noise([point for point, _ in chosen])
    growth = _growth(step, [m.step for m in medians], noise)
    rising = step if growth is not None else None
    explanation = Explanation(
        rows=tuple(_row(m, rising, reads, ceiling, concurrency) for m in medians),
        concurrency=concurrency,
        step=step,
        per_token=per_token,
        prefill=fit_parabola([prompt for prompt, _ in cold], [ttft for _, ttft in cold]),
        reads=reads,
        ceiling=ceiling,
        growth=growth,
        noise=noise,
        cache_bandwidth=_cache_bandwidth(rising, reads, concurrency),
        weights_floor=_time(reads.weights, ceiling),
        crossover=_crossover(rising),
        deepest=Tokens(round(medians[-1].depth)),
        better_kernel=_better_kernel(rising, medians[-1].depth, reads, ceiling, concurrency),
        findings=(),
    )
    return msgspec.structs.replace(explanation, findings=findings(explanation))


def _why_none(valid: Sequence[Point]) -> str:
    """What the valid points lack."""
    if valid and all(point.rate is not None for point in valid):
        return "all valid points are of requests at a rate, of which it is not known how many decoded together"
    if any(figures(point).decode_rate_bounds is not None for point in valid):
        return "no valid point tells how many tokens its first chunk brought: its decode rates are bounds"
    return "no valid point holds a request with two timed output tokens"


class _Medians(msgspec.Struct, frozen=True):
    """One point in the figures that sweep shows too."""

    prompt: float
    depth: float
    ttft: float | None
    step: float
    per_token: float

    @classmethod
    def of(cls, point: Point) -> "_Medians | None":
        """None where the point's requests do not tell the time of a step and of a token."""
        shown, prompt = figures(point), point.prompt_tokens
        if prompt is None or shown.step_time is None or shown.decode_rate is None:
            return None
        outputs = [sample.completion_tokens for sample in point.measured if sample.completion_tokens is not None]
        return cls(
            prompt=prompt,
            depth=prompt + statistics.median(outputs) / 2,
            ttft=shown.ttft.value if shown.ttft else None,
            step=shown.step_time.value,
            per_token=1 / shown.decode_rate.value,
        )


_ENOUGH: Final = 3
"""Depths that give a line with an interval; with so many quiet ones, those too noisy to be used are left out."""
_DOUBLED: Final = 2.0


def _noise(points: Sequence[Point]) -> float | None:
    """Median over the depths of how far a request's step lies from its depth's median, as a share of it."""
    shares = []
    for point in points:
        steps = [sample.step_time for sample in point.measured if sample.step_time]
        if len(steps) > 1:
            middle = statistics.median(steps)
            shares.append(statistics.median(abs(step - middle) / middle for step in steps))
    return statistics.median(shares) if shares else None


def _growth(step: Line | None, steps: Sequence[float], noise: float | None) -> Confidence | None:
    """Certain where the slope's interval lies above zero and the requests at each depth agree.

    Few depths make a wide interval, of a curve that bends too. Then growth is likely where every deeper step is
    longer and the last at least twice the first, which noise on a server does not do.
    """
    if step is None or step.slope.value <= 0:
        return None
    if step.slope.low is not None and step.slope.low > 0:
        return "certain" if noise is None or noise <= NOISY else "likely"
    rising = all(before < after for before, after in itertools.pairwise(steps))
    return "likely" if rising and steps[-1] >= _DOUBLED * steps[0] else None


def _row(m: _Medians, step: Line | None, reads: Reads, ceiling: Ceiling | None, concurrency: int) -> DepthRow:
    floor = None
    if ceiling and reads.weights is not None and reads.cache_per_token is not None:
        read = Bytes(round(reads.weights + reads.cache_per_token * m.depth * concurrency))
        floor = memory_time(read, ceiling.bytes_per_second)
    return DepthRow(
        depth=Tokens(round(m.depth)),
        step=Seconds(m.step),
        per_token=Seconds(m.per_token),
        tokens_per_step=m.step / m.per_token,
        depth_share=_depth_share(step, m.depth),
        floor=floor,
    )


def _depth_share(step: Line | None, depth: float) -> float | None:
    """A negative intercept, which noise can make of a small one, leaves nothing that is fixed."""
    if step is None:
        return None
    growing = step.slope.value * depth
    return growing / (max(0.0, step.intercept.value) + growing)


def _time(read: Bytes | None, ceiling: Ceiling | None) -> Seconds | None:
    return memory_time(read, ceiling.bytes_per_second) if ceiling and read is not None else None


def _crossover(step: Line | None) -> Tokens | None:
    if step is None or step.slope.value <= 0 or (step.intercept.low or step.intercept.value) <= 0:
        return None
    return Tokens(round(step.intercept.value / step.slope.value))


def _cache_bandwidth(step: Line | None, reads: Reads, concurrency: int) -> Coefficient | None:
    """1/slope turns the interval's ends around; an end at or below zero leaves that side open."""
    if step is None or reads.cache_per_token is None:
        return None
    read = Bytes(reads.cache_per_token * concurrency)

    def rate(slope: float | None) -> float | None:
        return effective_bandwidth(read, Seconds(slope)) if slope is not None and slope > 0 else None

    value = effective_bandwidth(read, Seconds(step.slope.value))
    return Coefficient(value=value, low=rate(step.slope.high), high=rate(step.slope.low))


def _better_kernel(
    step: Line | None, depth: float, reads: Reads, ceiling: Ceiling | None, concurrency: int
) -> Seconds | None:
    if step is None or ceiling is None or reads.cache_per_token is None:
        return None
    least = memory_time(Bytes(round(reads.cache_per_token * depth * concurrency)), ceiling.bytes_per_second)
    return Seconds(max(0.0, step.intercept.value) + min(least, step.slope.value * depth))
