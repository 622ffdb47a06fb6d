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
    """A median of `count` values and its interval; `low` and `high` are None where one value cannot say.

    The interval holds the true median with 95 %, save by the method "range": least to greatest, 1 - 2^(1 - count).
    """

    value: float
    low: float | None
    high: float | None
    count: int
    method: Literal["one value", "log student", "range", "order"]

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
    Student's t about the mean of the logarithms stands in: it takes the values to be roughly log-normal, as times and
    rates with relative noise are, and never reaches below zero. Values that have no logarithm leave their range.
    """
    if not values:
        return None
    middle, count = median(values), len(values)
    if count == 1:
        return Median(value=middle, low=None, high=None, count=1, method="one value")
    if count < FEWEST_FOR_ORDER:
        if min(values) <= 0:
            return Median(value=middle, low=min(values), high=max(values), count=count, method="range")
        logarithms = [math.log(value) for value in values]
        half = student_quantile(count - 1) * stdev(logarithms) / math.sqrt(count)
        low, high = _exp(fmean(logarithms) - half), _exp(fmean(logarithms) + half)
        return Median(value=middle, low=min(low, middle), high=max(high, middle), count=count, method="log student")
    rank = order_rank(count)
    ordered = sorted(values)
    return Median(value=middle, low=ordered[rank], high=ordered[count - 1 - rank], count=count, method="order")


def _exp(power: float) -> float:
    """e to the power, capped where no float is as large: two values can be so far apart."""
    return math.exp(min(power, 700.0))


def inverse(estimate: Median | None) -> Median | None:
    """The rate to a time, or the time to a rate: 1 / median, the ends of the interval changing places.

    The median of rates would be another number for an even count.
    """
    if estimate is None or estimate.value <= 0:
        return None
    return Median(
        value=1 / estimate.value,
        low=None if estimate.high is None else 1 / estimate.high,
        high=1 / estimate.low if estimate.low else None,
        count=estimate.count,
        method=estimate.method,
    )


def ratio(above: Median | None, below: Median | None, estimate: Median | None) -> Median | None:
    """`estimate` with the quotient of two medians as its value, so that three numbers beside each other agree.

    The median of quotients is another number than the quotient of medians.
    """
    if above is None or below is None or estimate is None or below.value <= 0:
        return estimate
    value = above.value / below.value
    return msgspec.structs.replace(
        estimate,
        value=value,
        low=None if estimate.low is None else min(estimate.low, value),
        high=None if estimate.high is None else max(estimate.high, value),
    )


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
