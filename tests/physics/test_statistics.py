import random
from statistics import median

import pytest
from scipy.stats import binom, t

from draftmark.physics.statistics import Median, inverse, median_of, order_rank, ratio, student_quantile, tail


def test_nothing_and_one_value() -> None:
    assert median_of([]) is None
    single = median_of([3.0])
    assert single == Median(value=3.0, low=None, high=None, count=1, method="one value")
    assert single.half_width is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4])
def test_students_table(freedom: int) -> None:
    assert student_quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-4)


@pytest.mark.parametrize("count", range(6, 60))
def test_order_intervals_cover_the_median_with_95_percent_and_no_narrower_one_does(count: int) -> None:
    rank = order_rank(count)
    assert 1 - 2 * binom.cdf(rank, count, 0.5) >= 0.95 or rank == 0
    assert 1 - 2 * binom.cdf(rank + 1, count, 0.5) < 0.95


def test_intervals_hold_what_they_promise() -> None:
    order = random.Random(11)
    for count in (3, 5, 8, 20):
        held = 0
        for _ in range(400):
            found = median_of([order.gauss(10, 1) for _ in range(count)])
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            held += found.low <= 10 <= found.high
        assert held / 400 > 0.92


def test_half_width_is_the_farther_end() -> None:
    found = median_of([1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    assert found is not None
    assert found.value == median([1, 1, 1, 1, 1, 2])
    assert found.half_width == pytest.approx(1.0)


def test_a_tail_without_values_in_it_is_unknown() -> None:
    assert tail([1.0] * 99, 0.99) is None
    assert tail([float(value) for value in range(1, 101)], 0.99) == 99.0
    assert tail([], 0.5) is None


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_intervals_of_times_stay_above_zero_and_hold_what_they_promise(count: int) -> None:
    order, held = random.Random(5), 0
    for _ in range(4000):
        found = median_of([order.lognormvariate(0, 1.5) for _ in range(count)])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert 0 < found.low <= found.value <= found.high
        held += found.low <= 1 <= found.high
    assert held / 4000 > 0.94


def test_values_without_a_logarithm_leave_their_range() -> None:
    found = median_of([0.0, 1.0, 3.0])
    assert found == Median(value=1.0, low=0.0, high=3.0, count=3, method="range")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 9])
def test_a_rate_is_that_of_the_median_time(count: int) -> None:
    times = [0.1 * 1.7**index for index in range(count)]
    time, rate = median_of(times), inverse(median_of(times))
    assert time is not None
    assert rate is not None
    assert rate.value == pytest.approx(1 / median(times))
    if count > 1:
        assert rate.low == pytest.approx(1 / (time.high or 0))
        assert rate.high == pytest.approx(1 / (time.low or 0))
    assert inverse(None) is None


def test_a_ratio_of_medians_lies_in_its_interval() -> None:
    step, token, each = median_of([1.0, 2.0, 3.0]), median_of([1.0, 1.0, 1.0]), median_of([1.0, 1.0, 1.0])
    found = ratio(step, token, each)
    assert found is not None
    assert (found.value, found.high) == (2.0, 2.0)
    assert found.low == pytest.approx(1.0)
    assert ratio(step, None, each) == each
