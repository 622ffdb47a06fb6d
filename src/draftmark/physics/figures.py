"""The figures of a point: what its samples say together, each a median with its interval."""

import msgspec

from draftmark.physics.statistics import Median, median_of
from draftmark.sample import Point, Sample


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A point's medians with intervals; None where the samples cannot tell. Seconds, tokens a second, tokens."""

    prompt_tokens: int | None
    ttft: Median | None
    prefill_rate: Median | None
    decode_rate: Median | None
    decode_time: Median | None
    step_time: Median | None
    tokens_a_step: Median | None
    decode_rate_bounds: tuple[float, float] | None
    """Where the tokens of the first chunk are unknown: the least and greatest rate that the counts allow."""


def figures(point: Point) -> Figures:
    """The figures of a point over its measured samples."""
    samples = point.measured

    def over(name: str) -> Median | None:
        return median_of([value for sample in samples if (value := getattr(sample, name)) is not None])

    return Figures(
        prompt_tokens=point.prompt_tokens,
        ttft=over("ttft"),
        prefill_rate=over("prefill_rate"),
        decode_rate=over("decode_rate"),
        decode_time=over("decode_time"),
        step_time=over("step_time"),
        tokens_a_step=over("tokens_a_step"),
        decode_rate_bounds=_rate_bounds(samples),
    )


def _rate_bounds(samples: tuple[Sample, ...]) -> tuple[float, float] | None:
    lows, highs = [], []
    for sample in samples:
        bounds = sample.decode_tokens_bounds
        if sample.decode_tokens is None and bounds is not None and sample.decode_time:
            lows.append(bounds[0] / sample.decode_time)
            highs.append(bounds[1] / sample.decode_time)
    return (min(lows), max(highs)) if lows else None
