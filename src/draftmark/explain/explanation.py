"""What an explanation of a decode curve holds."""

from typing import Final, Literal

import msgspec

from draftmark.finding import Confidence, Finding
from draftmark.physics.fits import Coefficient, Line, Parabola
from draftmark.units import Bytes, BytesPerSecond, Seconds, Tokens

NOISY: Final = 0.1
"""Spread of requests at one depth beyond which nothing that the curve shows is called certain."""


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """A memory bandwidth to hold the effective one against."""

    bytes_per_second: BytesPerSecond
    kind: Literal["measured here", "datasheet", "given"]
    source: str


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What one step must read on each GPU; None where it is not known."""

    cache_per_token: Bytes | None = None
    weights: Bytes | None = None
    why: str = ""


class DepthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One depth: the median step, what of it the fit gives to each part, and how low it could be."""

    depth: Tokens
    step: Seconds
    per_token: Seconds
    tokens_per_step: float
    depth_share: float | None
    """Share of the step that grows with depth; None where no growth is told."""
    floor: Seconds | None
    """Time to read the weights and the cache once at the ceiling; None where either is unknown."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The fit and what follows. None wherever the points or the model do not say."""

    rows: tuple[DepthRow, ...]
    concurrency: int
    step: Line | None
    """Seconds a step (a verify step under speculation) over tokens of depth."""
    per_token: Line | None
    """Seconds an emitted token over tokens of depth."""
    prefill: Parabola | None
    """Seconds to the first token over prompt tokens."""
    reads: Reads
    ceiling: Ceiling | None
    growth: Confidence | None
    """How sure it is that a step grows with depth; None where that cannot be told from the noise."""
    noise: float | None
    """How far requests at one depth lie from their median step, as a share; None where each depth has one request."""
    cache_bandwidth: Coefficient | None
    """Bytes a second at which the cache is read, per GPU."""
    weights_floor: Seconds | None
    crossover: Tokens | None
    """Depth at which the growing part equals the fixed one; None where nothing grows."""
    deepest: Tokens
    better_kernel: Seconds | None
    """The step at the deepest depth, were the cache read at the ceiling and all else as it is."""
    findings: tuple[Finding, ...]
