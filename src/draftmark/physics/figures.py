"""The figures of a point: what its samples say together, each a median with its interval."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean, median

import msgspec

from draftmark.physics.statistics import Median, inverse, median_of, ratio, tail
from draftmark.sample import Point, Sample


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A point's medians with intervals; None where the samples cannot tell. Seconds, tokens a second, tokens.

    Requests that were sent together share the server and are not independent: their mean is one value. Rates are of
    the median times, and tokens a step are the median step over the median time a token, so that all three agree.
    """

    prompt_tokens: int | None
    ttft: Median | None
    ttft_due: Median | None
    """Time to first token from when requests were due; differs from `ttft` where the client could not keep up."""
    ttft_p90: float | None
    ttft_p99: float | None
    """Tails of the same; None with fewer requests than have one beyond."""
    prefill_rate: Median | None
    decode_rate: Median | None
    decode_time: Median | None
    step_time: Median | None
    tokens_a_step: Median | None
    total_rate: Median | None
    """Tokens a second of all requests sent together, while all of them were decoding."""
    gap_median: float | None
    gap_p99: float | None
    """Times between chunks, of all requests together: not times between tokens, where a chunk brings several."""
    decode_rate_bounds: tuple[float, float] | None
    """Where the tokens of the first chunk are unknown: the least and greatest rate that the counts allow."""


def figures(point: Point) -> Figures:
    """The figures of a point over its measured samples."""
    batches = batches_of(point.measured)
    filled = [prefilled for batch in batches if (prefilled := _prefilled(batch, point.measured))]
    waits = [wait for batch in filled for sample in batch if (wait := sample.ttft_due) is not None]
    gaps = [after.at - before.at for sample in point.measured for before, after in pairwise(sample.arrivals)]
    step_time, token_time = _over(batches, "step_time"), _over(batches, "token_time")
    return Figures(
        prompt_tokens=point.prompt_tokens,
        ttft=_over(filled, "ttft"),
        ttft_due=_over(filled, "ttft_due"),
        ttft_p90=tail(waits, 0.9),
        ttft_p99=tail(waits, 0.99),
        prefill_rate=inverse(_over(filled, "prefill_time")),
        decode_rate=inverse(token_time),
        decode_time=_over(batches, "decode_time"),
        step_time=step_time,
        tokens_a_step=ratio(step_time, token_time, _over(batches, "tokens_a_step")),
        total_rate=median_of([rate for batch in batches if (rate := window_rate(batch)) is not None]),
        gap_median=median(gaps) if gaps else None,
        gap_p99=tail(gaps, 0.99),
        decode_rate_bounds=_rate_bounds(point),
    )


def batches_of(samples: tuple[Sample, ...]) -> tuple[tuple[Sample, ...], ...]:
    """Samples that were due at the same moment, batch by batch."""
    return tuple(tuple(batch) for _, batch in groupby(samples, key=lambda sample: sample.due))


def _over(batches: Sequence[Sequence[Sample]], name: str) -> Median | None:
    """Median over batches of the mean within each."""
    known = [[value for sample in batch if (value := getattr(sample, name)) is not None] for batch in batches]
    return median_of([fmean(values) for values in known if values])


def _prefilled(batch: tuple[Sample, ...], samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Those that prefilled what the depth asks for, and did not find it in the cache as a warm repeat does."""
    most = max((_fresh(sample) for sample in samples), default=0)
    return tuple(sample for sample in batch if 2 * _fresh(sample) >= most)


def _fresh(sample: Sample) -> int:
    return (sample.prompt_tokens or 0) - (sample.cached_tokens or 0)


def window_rate(batch: tuple[Sample, ...]) -> float | None:
    """Tokens a second of a batch from the moment when its last stream has begun until the first one ends.

    None where the streams do not overlap, or where chunks are not counted.
    """
    streams = [[(sample.sent + arrival.at, arrival.tokens) for arrival in sample.arrivals] for sample in batch]
    if not streams or any(len(stream) < 2 for stream in streams):
        return None
    begin, end = max(stream[0][0] for stream in streams), min(stream[-1][0] for stream in streams)
    if end <= begin:
        return None
    tokens = 0.0
    for stream in streams:
        counted = [(at, count) for at, count in stream if count is not None]
        if len(counted) < len(stream):
            return None
        tokens += _count_at(counted, end) - _count_at(counted, begin)
    return tokens / (end - begin)


def _count_at(stream: Sequence[tuple[float, int]], moment: float) -> float:
    """Tokens of a stream at a moment within it, in proportion between its chunks."""
    for (before, least), (after, most) in pairwise(stream):
        if before <= moment <= after:
            return least + (most - least) * ((moment - before) / (after - before) if after > before else 1.0)
    return float(stream[-1][1])


def _rate_bounds(point: Point) -> tuple[float, float] | None:
    lows, highs = [], []
    for sample in point.measured:
        bounds = _tokens_bounds(sample, point.output)
        if sample.decode_tokens is None and bounds is not None and sample.decode_time:
            lows.append(bounds[0] / sample.decode_time)
            highs.append(bounds[1] / sample.decode_time)
    return (min(lows), max(highs)) if lows else None


def _tokens_bounds(sample: Sample, output: int) -> tuple[int, int] | None:
    """Fewest and most tokens after the first chunk; without any usage, no more came than were asked for."""
    if sample.completion_tokens is None and sample.arrivals and output:
        most = max(output - sample.at_first, 0)
        return min(len(sample.arrivals) - sample.at_first, most), most
    return sample.decode_tokens_bounds
