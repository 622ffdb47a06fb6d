"""Explanations of curves whose causes are known."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.explain import Ceiling, Explanation, Reads, explain
from draftmark.sample import TOO_NOISY, Arrival, Point, Sample
from draftmark.units import Bytes, BytesPerSecond, Seconds, Tokens

GDDR = Ceiling(bytes_per_second=BytesPerSecond(1.792e12), kind="datasheet", source="RTX PRO 6000")
KIMI = Reads(cache_per_token=Bytes(61 * 1152), weights=Bytes(4 * 10**9), why="61 layers x 576 x 2")


def request(depth: int, step: float, *, steps: int = 24, tokens_per_step: int = 1, ttft: float = 1.0) -> Sample:
    arrivals = tuple(
        Arrival(at=Seconds(ttft + step * i), tokens=Tokens(1 + i * tokens_per_step)) for i in range(steps + 1)
    )
    return Sample(
        due=Seconds(0),
        sent=Seconds(0),
        arrivals=arrivals,
        ended=arrivals[-1].at,
        prompt_tokens=Tokens(depth),
        cached_tokens=Tokens(0),
        completion_tokens=arrivals[-1].tokens,
        counted_by="usage per chunk",
    )


def point(depth: int, *samples: Sample, concurrency: int = 1, invalid: str | None = None) -> Point:
    return Point(asked=Tokens(depth), output=Tokens(24), concurrency=concurrency, samples=samples, invalid=invalid)


def codes(explanation: Explanation) -> set[str]:
    return {finding.code for finding in explanation.findings}


def test_the_published_cliff_is_found() -> None:
    """118.6 / 19.9 / 6.3 tok/s at 1,427 / 11,402 / 31,952 tokens: 4.2 to 5.3 us a token, about 14 GB/s of 1.8 TB/s."""
    rates = {1427: 118.6, 11402: 19.9, 31952: 6.3}
    explanation = explain([point(d, request(d, 1 / r)) for d, r in rates.items()], reads=KIMI, ceiling=GDDR)
    assert explanation.step is not None
    assert 4.2e-6 < explanation.step.slope.value < 5.3e-6
    assert explanation.cache_bandwidth is not None
    assert explanation.cache_bandwidth.value == pytest.approx(14e9, rel=0.15)
    assert explanation.growth == "likely"
    assert "slow-attention-kernel" in codes(explanation)
    assert "attention-rules" in codes(explanation)
    assert explanation.better_kernel is not None
    assert explanation.better_kernel < 0.1 * explanation.step.at(31952)


def test_speculation_separates_steps_from_tokens() -> None:
    points = [point(d, request(d, 0.01 + 1e-6 * d, tokens_per_step=3)) for d in (1000, 4000, 16000, 64000)]
    explanation = explain(points, reads=KIMI, ceiling=GDDR)
    assert explanation.step is not None
    assert explanation.per_token is not None
    assert explanation.step.slope.value == pytest.approx(1e-6, rel=1e-3)
    assert explanation.per_token.slope.value == pytest.approx(1e-6 / 3, rel=1e-3)
    assert all(row.tokens_per_step == pytest.approx(3) for row in explanation.rows)


def test_invalid_points_warm_ups_and_failures_are_not_used() -> None:
    good = [point(d, request(d, 0.01 + 1e-6 * d)) for d in (1000, 4000, 16000)]
    slow = request(8000, 5.0)
    bad = [
        point(8000, slow, invalid="the server restarted"),
        point(8001, msgspec.structs.replace(slow, warm_up=True), msgspec.structs.replace(slow, error="reset")),
    ]
    assert [row.step for row in explain([*good, *bad]).rows] == [row.step for row in explain(good).rows]
    with pytest.raises(ValueError, match="no valid point"):
        explain(bad)


def test_points_too_noisy_to_be_used_are_left_out_where_enough_are_quiet() -> None:
    quiet = [
        point(d, *(request(d, 0.01 + 1e-6 * d + jitter) for jitter in (0, 1e-5, 2e-5))) for d in (2000, 4000, 16000)
    ]
    noisy = point(1000, *(request(1000, step) for step in (0.02, 0.2, 0.9)))
    noisy = msgspec.structs.replace(noisy, flags=(f"{TOO_NOISY}the interval is wide",))
    assert [row.depth for row in explain([noisy, *quiet]).rows] == [2012, 4012, 16012]
    assert [row.depth for row in explain([noisy, *quiet[:2]]).rows] == [1012, 2012, 4012]


def test_a_flat_curve_is_not_blamed_on_attention() -> None:
    points = [point(d, request(d, 0.02 + noise)) for d, noise in ((1000, 2e-5), (2000, -2e-5), (4000, 1e-5), (8000, 0))]
    explanation = explain(points, reads=KIMI, ceiling=GDDR)
    assert codes(explanation) == {"growth-not-told-from-noise", "overhead-rules-fixed-part"}
    assert explanation.rows[-1].depth_share is None
    assert explanation.cache_bandwidth is None


def test_what_is_not_known_stays_unknown() -> None:
    explanation = explain([point(1000, request(1000, 0.01))])
    assert explanation.step is None
    assert (explanation.cache_bandwidth, explanation.crossover, explanation.better_kernel) == (None, None, None)
    assert explanation.rows[0].floor is None
    assert codes(explanation) == {"too-few-depths"}


def test_noise_never_becomes_a_share_a_bandwidth_or_a_promise() -> None:
    """Step times of a busy machine, over which a least-squares line has a negative intercept."""
    times = {268: 0.0773, 524: 0.0132, 1036: 0.00463, 2060: 0.0277, 3084: 0.0404, 4108: 0.0429}
    explanation = explain([point(d, request(d, t)) for d, t in times.items()], reads=KIMI, ceiling=GDDR)
    assert explanation.growth is None
    assert {row.depth_share for row in explanation.rows} == {None}
    assert (explanation.cache_bandwidth, explanation.better_kernel, explanation.crossover) == (None, None, None)
    assert "growth-not-told-from-noise" in codes(explanation)


@given(st.lists(st.floats(1e-4, 10), min_size=2, max_size=8))
def test_what_is_said_is_possible(steps: list[float]) -> None:
    explanation = explain(
        [point(1000 * 2**i, request(1000 * 2**i, s)) for i, s in enumerate(steps)], reads=KIMI, ceiling=GDDR
    )
    shares = [row.depth_share for row in explanation.rows if row.depth_share is not None]
    assert all(0 < share <= 1 for share in shares)
    assert explanation.better_kernel is None or explanation.better_kernel > 0
    assert explanation.crossover is None or explanation.crossover >= 0


def test_a_byte_count_that_cannot_be_is_said() -> None:
    points = [point(d, request(d, 0.01 + 1e-9 * d)) for d in (1000, 4000, 16000, 64000)]
    assert "bandwidth-above-ceiling" in codes(explain(points, reads=KIMI, ceiling=GDDR))


def test_requests_side_by_side_read_their_caches_in_one_step() -> None:
    alone = [point(d, request(d, 0.01 + 1e-6 * d)) for d in (1000, 4000, 16000)]
    four = [point(d, *[request(d, 0.01 + 4e-6 * d)] * 4, concurrency=4) for d in (1000, 4000, 16000, 32000)]
    together, single = explain([*alone[:2], *four], reads=KIMI), explain(alone, reads=KIMI)
    assert together.concurrency == 4
    assert together.cache_bandwidth is not None
    assert single.cache_bandwidth is not None
    assert together.cache_bandwidth.value == pytest.approx(single.cache_bandwidth.value, rel=1e-3)


def test_every_code_is_documented() -> None:
    root = Path(__file__).parents[1]
    source = (root / "src" / "draftmark" / "explain" / "findings.py").read_text(encoding="utf-8")
    codes_in_source = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source))
    page = (root / "docs" / "cost-of-depth.md").read_text(encoding="utf-8")
    assert codes_in_source == set(re.findall(r"^\| `([a-z-]+)` \|", page, flags=re.MULTILINE))


def uncounted(depth: int) -> Sample:
    made = request(depth, 0.01)
    arrivals = tuple(Arrival(at=one.at, tokens=None) for one in made.arrivals)
    return msgspec.structs.replace(made, arrivals=arrivals, counted_by="usage at the end")


def test_points_at_a_rate_are_no_part_of_the_curve_of_streams() -> None:
    streams = [point(depth, request(depth, 0.01 + 1e-6 * depth)) for depth in (1000, 4000, 16000)]
    loaded = [msgspec.structs.replace(point(d, request(d, 0.5)), rate=2.0) for d in (1000, 2000, 4000, 8000)]
    assert explain([*streams, *loaded]).rows == explain(streams).rows


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], "no valid point holds a request"),
        ([point(1000, request(1000, 0.01), invalid="dead")], "no valid point holds a request"),
        ([point(1000, request(1000, 0.01, steps=0))], "no valid point holds a request"),
        ([point(1000, uncounted(1000))], "its decode rates are bounds"),
        ([msgspec.structs.replace(point(1000, request(1000, 0.01)), rate=2.0)], "at a rate"),
    ],
)
def test_why_nothing_can_be_explained_is_told(points: list[Point], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        explain(points)
