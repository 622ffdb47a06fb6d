"""Curves through measurements whose errors are proportional to their size, with intervals.

Timing noise on a server is relative (a few percent of a step, short or long), so points are weighted by 1/y²:
otherwise the deepest point alone would decide the line. Intervals are two-sided Student intervals from the scatter
about the curve.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE: Final = 0.95


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted number and its interval; `low` and `high` are None where the points leave no degree of freedom."""

    value: float
    low: float | None
    high: float | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """y = intercept + slope * x."""

    intercept: Coefficient
    slope: Coefficient
    points: int
    scatter: float | None
    """Standard deviation of the relative residuals; None without a degree of freedom."""

    def at(self, x: float) -> float:
        """The line's value."""
        return self.intercept.value + self.slope.value * x


class Parabola(msgspec.Struct, frozen=True, kw_only=True):
    """y = linear * x + quadratic * x², through the origin: work that has a part a token and a part a pair of tokens."""

    linear: Coefficient
    quadratic: Coefficient
    points: int

    def at(self, x: float) -> float:
        """The curve's value."""
        return self.linear.value * x + self.quadratic.value * x * x


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """Least squares with weights 1/y²; None where fewer than two different x are given. All y must be positive."""
    if len(set(x)) < 2:
        return None
    abscissa = np.asarray(x, dtype=float)
    estimates, scatter = _solve(np.column_stack([np.ones_like(abscissa), abscissa]), np.asarray(y, dtype=float))
    return Line(intercept=estimates[0], slope=estimates[1], points=len(x), scatter=scatter)


def fit_parabola(x: Sequence[float], y: Sequence[float]) -> Parabola | None:
    """Least squares with weights 1/y²; None without two different positive x, or where noise makes a part negative."""
    if len({value for value in x if value > 0}) < 2:
        return None
    abscissa = np.asarray(x, dtype=float)
    estimates, _ = _solve(np.column_stack([abscissa, abscissa**2]), np.asarray(y, dtype=float))
    if min(estimate.value for estimate in estimates) < 0:
        return None
    return Parabola(linear=estimates[0], quadratic=estimates[1], points=len(x))


def _solve(design: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[list[Coefficient], float | None]:
    """Coefficients of design @ c = y in relative terms, and the relative scatter."""
    scale = np.abs(design).max(axis=0)
    relative = design / scale / y[:, None]
    solved, _, _, _ = np.linalg.lstsq(relative, np.ones_like(y), rcond=None)
    freedom = len(y) - design.shape[1]
    if freedom < 1:
        return [Coefficient(value=float(v), low=None, high=None) for v in solved / scale], None
    variance = float(np.sum((relative @ solved - 1) ** 2)) / freedom
    errors = np.sqrt(np.diag(np.linalg.inv(relative.T @ relative)) * variance) / scale
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))
    estimates = [
        Coefficient(value=float(v), low=float(v - reach * e), high=float(v + reach * e))
        for v, e in zip(solved / scale, errors, strict=True)
    ]
    return estimates, variance**0.5
