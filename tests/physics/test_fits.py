"""Fits find the curves that made the points, and say how sure they are."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.physics.fits import fit_line, fit_parabola


@given(
    a=st.floats(1e-3, 10),
    b=st.floats(1e-8, 1e-2),
    x=st.lists(st.integers(1, 300_000), min_size=3, max_size=9, unique=True),
)
def test_a_line_is_found_again(a: float, b: float, x: list[int]) -> None:
    line = fit_line([float(v) for v in x], [a + b * v for v in x])
    assert line is not None
    assert line.at(x[0]) == pytest.approx(a + b * x[0], rel=1e-6)
    assert line.slope.low is not None
    assert line.slope.high is not None
    assert line.slope.low <= line.slope.value <= line.slope.high


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng, covered, runs = random.Random(7), 0, 400
    x = [1000.0, 2000.0, 4000.0, 8000.0, 16000.0]
    for _ in range(runs):
        line = fit_line(x, [(0.01 + 2e-6 * v) * rng.gauss(1, 0.02) for v in x])
        assert line is not None
        assert line.slope.low is not None
        assert line.slope.high is not None
        covered += line.slope.low <= 2e-6 <= line.slope.high
    assert 0.92 <= covered / runs <= 0.98


def test_two_points_give_a_line_without_an_interval_and_one_gives_none() -> None:
    line = fit_line([1.0, 2.0], [1.0, 3.0])
    assert line is not None
    assert (line.slope.low, line.scatter) == (None, None)
    assert fit_line([5.0, 5.0], [1.0, 1.1]) is None


def test_a_prefill_that_gets_cheaper_is_noise_and_no_curve() -> None:
    assert fit_parabola([1000, 2000, 4000], [1.0, 1.6, 2.2]) is None


def test_the_published_prefill_rows_extrapolate_to_over_five_minutes() -> None:
    """Kimi K2.6 on 8 RTX PRO 6000: TTFT 0.46 / 4.29 / 17.55 s at 1,427 / 11,402 / 31,952 tokens."""
    curve = fit_parabola([1427, 11402, 31952], [0.46, 4.29, 17.55])
    assert curve is not None
    assert 300 < curve.at(185_000) < 400
