"""Uncertain terms of a prediction: what they are, how far off they may be, and where they were measured."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from draftmark.units import GIB, Bytes

NINETY: Final = 1.645
"""Standard deviations to either side that hold 90 % of a normal distribution."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes with a standard deviation; `why` is the formula with its numbers and its source."""

    bytes: Bytes
    deviation: float
    why: str


def spread(terms: Iterable[Term]) -> float:
    """Standard deviation of a sum of independent terms, in bytes."""
    return math.sqrt(sum(term.deviation**2 for term in terms))


def exceeds(needed: float, deviation: float) -> float:
    """Probability that something expected to leave `-needed` bytes does not fit: Phi(needed / deviation)."""
    if deviation <= 0:
        return 1.0 if needed > 0 else 0.0
    return 0.5 * (1 + math.erf(needed / deviation / math.sqrt(2)))


def left_over(size: float) -> str:
    """What is left of a memory in GiB; "nothing" where that is less than nothing."""
    return f"{size / GIB:.2f} GiB" if size > 0 else "nothing"
