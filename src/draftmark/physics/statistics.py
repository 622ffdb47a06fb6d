"""Medians with intervals: what a handful of repeats can say, and what it cannot."""

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Final, Literal

import msgspec

CONFIDENCE: Final = 0.95
FEWEST_FOR_ORDER: Final = 6
"""With five values the widest order interval, least to greatest, holds the median with 93.75 % only."""


class Median(msgspec.Struct, frozen=True, kw_only=True):
    """A median of `count` values and its 95 % interval; `low` and `high` are None where one value cannot say."""

    value: float
    low: float | None
    high: float | None
    count: int
    method: Literal["one value", "student", "order"]

    @property
    def half_width(self) -> float | None:
        """The farther end of the interval from the median, as a share of the median."""
        if self.low is None or self.high is None or not self.value:
            return None
        return max(self.high - self.value, self.value - self.low) / abs(self.value)


def median_of(values: Sequence[float]) -> Median | None:
    """Median and interval; None of nothing.

    From six values on the interval lies between two of the values themselves (binomial order statistics, no shape
    assumed: Conover, Practical Nonparametric Statistics, 3.2). Below that no such interval exists at 95 %, and
    Student's t about the mean stands in, which takes the values to be roughly normal.
    """
    if not values:
        return None
    middle, count = median(values), len(values)
    if count == 1:
        return Median(value=middle, low=None, high=None, count=1, method="one value")
    if count < FEWEST_FOR_ORDER:
        half = student_quantile(count - 1) * stdev(values) / math.sqrt(count)
        mean = fmean(values)
        return Median(
            value=middle, low=min(mean - half, middle), high=max(mean + half, middle), count=count, method="student"
        )
    rank = order_rank(count)
    ordered = sorted(values)
    return Median(value=middle, low=ordered[rank], high=ordered[count - 1 - rank], count=count, method="order")


def order_rank(count: int) -> int:
    """Largest r for which [x(r), x(n-1-r)], counted from 0, holds the median with 95 %; for n of six or more."""
    tail, probability = 0.0, 0.5**count
    rank = 0
    while tail + probability <= (1 - CONFIDENCE) / 2:
        tail += probability
        rank += 1
        probability *= (count - rank + 1) / rank
    return rank - 1


def student_quantile(freedom: int) -> float:
    """The 97.5 % point of Student's t for 1 to 4 degrees of freedom, from standard tables."""
    return {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}[freedom]


def tail(values: Sequence[float], share: float) -> float | None:
    """The `share` quantile by nearest rank; None where fewer than one value is expected beyond it.

    A 99th percentile of 20 values would be their greatest under another name.
    """
    if len(values) * (1 - share) < 1 - 1e-9:
        return None
    return sorted(values)[math.ceil(share * len(values)) - 1]
