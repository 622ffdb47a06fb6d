from statistics import median
from typing import Literal

import msgspec
import pytest

from draftmark.errors import BadInput, DraftmarkError
from draftmark.physics.figures import figures
from draftmark.sample import Point
from draftmark.selftest.model import Fault, FaultKind, Setup
from draftmark.selftest.process import GroundTruth
from draftmark.selftest.schedule import SHAPES, Pace, Shape
from draftmark.sweep import Options, sweep
from draftmark.units import Tokens

from .conftest import FAST

QUICK = Options(warm_up=0, repeats=2, most_repeats=2, output=Tokens(16), seed=1)


def nothing(point: Point) -> None:
    pass


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("token_ids", [True, False])
@pytest.mark.parametrize("tokenize", [True, False])
def test_prompts_count_what_was_asked(
    server: GroundTruth, api: Literal["completions", "chat"], token_ids: bool, tokenize: bool
) -> None:
    server.control(Setup(pace=FAST, token_ids=token_ids, tokenize=tokenize))
    options = msgspec.structs.replace(QUICK, api=api, output=Tokens(4))
    result = sweep(server.url, (100, 1000, 5000), options, sink=nothing)
    assert [point.invalid for point in result.points] == [None] * 3
    truth = {request.seed: request.prompt_tokens for request in server.truth()}
    for point in result.points:
        assert [truth[sample.seed] for sample in point.measured] == [point.asked] * 2


@pytest.mark.parametrize("shape", SHAPES)
def test_stamps_and_counts_in_every_shape(server: GroundTruth, shape: Shape) -> None:
    server.control(Setup(shape=shape, pace=Pace(first=0.05, step=0.01)))
    chat = shape in {"role chunk", "reasoning", "reasoning_content"}
    options = msgspec.structs.replace(QUICK, api="chat" if chat else "completions", output=Tokens(32), repeats=1)
    result = sweep(server.url, (200,), msgspec.structs.replace(options, most_repeats=1), sink=nothing)
    (sample,) = result.points[0].measured
    (truth,) = [request for request in server.truth() if request.seed == sample.seed]
    stamps = [sample.sent + arrival.at for arrival in sample.arrivals]
    late = [stamp - sent for stamp, (sent, _) in zip(stamps, truth.sends, strict=True)]
    assert min(late) >= 0, "nothing arrives before it is sent"
    assert median(late) < 0.25
    if shape == "no usage":
        assert sample.decode_rate is None
        assert result.points[0].flags
        bounds = figures(result.points[0]).decode_rate_bounds
        assert bounds is not None
        assert bounds[0] == pytest.approx(bounds[1])
    else:
        assert [arrival.tokens for arrival in sample.arrivals] == [tokens for _, tokens in truth.sends]
        assert sample.decode_tokens == 32 - truth.sends[sample.at_first - 1][1]
        assert sample.at_first > 1 or shape != "coalesced"


def test_depths_that_cannot_fit_are_not_sent(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, context=2000))
    result = sweep(server.url, (1000, 1985), QUICK, sink=nothing)
    (refused,) = result.refusals
    assert (refused.asked, refused.largest) == (1985, 1984)
    assert [point.asked for point in result.points] == [1000]


def test_points_are_kept_in_order_before_the_next_request(server: GroundTruth) -> None:
    kept: list[tuple[int, int, bool, int]] = []
    sent: list[int] = []

    def sink(point: Point) -> None:
        sent.append(len(server.truth()))
        kept.append((point.concurrency, point.asked, point.open, len(point.samples)))

    options = msgspec.structs.replace(QUICK, concurrency=(2, 1))
    sweep(server.url, (100, 200), options, sink=sink)
    assert kept == [
        (1, 100, True, 1), (1, 100, False, 2), (1, 200, True, 1), (1, 200, False, 2),
        (2, 100, True, 2), (2, 100, False, 4), (2, 200, True, 2), (2, 200, False, 4),
    ]  # fmt: skip
    assert sent[1:] == [1, 1, 1, 2, 2, 2, 2]


def test_a_cached_prompt_is_no_prefill(server: GroundTruth) -> None:
    first = sweep(server.url, (500,), QUICK, sink=nothing)
    again = sweep(server.url, (500,), QUICK, sink=nothing)
    assert first.points[0].invalid is None
    assert "prefix cache" in str(again.points[0].invalid)


def test_a_lie_about_the_prompt_makes_the_point_invalid(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, fault=Fault(kind="lie", tokens=3, requests=2)))
    result = sweep(server.url, (500,), QUICK, sink=nothing)
    assert result.points[0].invalid == "asked for 500 tokens, the server counted 503"


def test_a_strict_server_is_spoken_to_plainly(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, strict=True))
    result = sweep(server.url, (500,), QUICK, sink=nothing)
    assert result.points[0].invalid is None
    assert result.dialect.extras == ("seed", "include_usage", "temperature")
    assert figures(result.points[0]).decode_rate is not None


@pytest.mark.parametrize("strict", [False, True])
def test_a_limit_by_its_newer_name_is_used_where_the_older_is_refused(server: GroundTruth, strict: bool) -> None:
    server.control(Setup(pace=FAST, completions=False, completion_limit=True, strict=strict))
    result = sweep(server.url, (500,), msgspec.structs.replace(QUICK, sanity=True), sink=nothing)
    assert [point.invalid for point in result.points] == [None]
    assert result.dialect.limit == "max_completion_tokens"


@pytest.mark.parametrize("kind", ["refuse", "unavailable", "break off", "lie"])
def test_a_failing_request_ends_the_ascent(server: GroundTruth, kind: FaultKind) -> None:
    server.control(Setup(pace=FAST, fault=Fault(kind=kind, requests=4, chunks=2, tokens=1)))
    result = sweep(server.url, (100, 200, 300), QUICK, sink=nothing)
    assert result.points[0].invalid is None
    assert result.points[1].invalid is not None
    if kind == "lie":
        assert result.stopped is None
    else:
        assert result.stopped == result.points[1].invalid
        assert len(result.points) == 2


def test_finished_points_are_not_measured_again(server: GroundTruth) -> None:
    first = sweep(server.url, (100, 200), QUICK, sink=nothing)
    kept: list[Point] = []
    poisoned = msgspec.structs.replace(first.points[1], invalid="the server died")
    again = sweep(server.url, (100, 200), QUICK, sink=kept.append, finished=(first.points[0], poisoned))
    assert again.points[0] == first.points[0]
    assert {point.asked for point in kept} == {200}


@pytest.mark.parametrize(
    ("depths", "words"), [((), "no depths"), ((4,), "too few"), ((200, 100), "increase"), ((200, 200), "increase")]
)
def test_depths_that_are_none(depths: tuple[int, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sweep("http://127.0.0.1:9", depths, QUICK, sink=nothing)


@pytest.mark.parametrize(("url", "words"), [("127.0.0.1:9", "not an http"), ("http://127.0.0.1:9", "does not answer")])
def test_urls_that_are_none(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sweep(url, (100,), QUICK, sink=nothing)


def test_a_model_that_is_not_there(server: GroundTruth) -> None:
    with pytest.raises(BadInput, match="it has truth"):
        sweep(server.url, (100,), msgspec.structs.replace(QUICK, model="other"), sink=nothing)


def test_a_warm_curve_costs_one_prefill(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST))
    depths = tuple(range(1000, 8001, 1000))
    result = sweep(server.url, depths, msgspec.structs.replace(QUICK, mode="warm"), sink=nothing)
    assert [point.invalid for point in result.points] == [None] * 8
    prefilled = sum(
        (sample.prompt_tokens or 0) - (sample.cached_tokens or 0) for point in result.points for sample in point.samples
    )
    assert prefilled <= 1.3 * depths[-1]
    assert all("warm" in point.flags[0] for point in result.points)
    shown = figures(result.points[-1]).prefill_rate
    assert shown is not None
    assert shown.count == 1, "a repeat that finds all of its prompt in the cache is no prefill"


def test_a_warm_curve_without_a_cache_says_so(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, prefix_cache=False))
    result = sweep(server.url, (100, 200), msgspec.structs.replace(QUICK, mode="warm"), sink=nothing)
    assert all("anew" in point.flags[0] for point in result.points)


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (Setup(pace=FAST, reports_cached=False, metrics=False), "not proved"),
        (Setup(pace=FAST, shape="no usage"), "tokens are unproven"),
        (
            Setup(pace=FAST, shape="coalesced", fault=Fault(kind="retract", requests=2, chunks=3)),
            "retracted 2 requests",
        ),
    ],
)
def test_what_limits_a_point_is_said(server: GroundTruth, setup: Setup, words: str) -> None:
    server.control(setup)
    (point,) = sweep(server.url, (100,), QUICK, sink=nothing).points
    assert point.invalid is None
    assert any(words in flag for flag in point.flags)


def test_counters_prove_cold_where_usage_does_not_say(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, reports_cached=False))
    first = sweep(server.url, (500,), QUICK, sink=nothing).points[0]
    again = sweep(server.url, (500,), QUICK, sink=nothing).points[0]
    assert first.invalid is None
    assert not any("not proved" in flag for flag in first.flags)
    assert "counter" in str(again.invalid)


def test_a_hang_ends_by_a_deadline(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, fault=Fault(kind="hang", requests=4, chunks=3)))
    result = sweep(server.url, (100, 200), msgspec.structs.replace(QUICK, stall=1.0), sink=nothing)
    assert "hang: the stream stalled" in str(result.stopped)
    assert result.points[0].invalid is None


def test_a_first_token_that_does_not_come_is_a_hang(server: GroundTruth) -> None:
    server.control(Setup(pace=Pace(first=30.0), token_ids=False))
    with pytest.raises(DraftmarkError, match="no answer began"):
        sweep(server.url, (100,), msgspec.structs.replace(QUICK, first_patience=1.0), sink=nothing)


def test_streams_together(server: GroundTruth) -> None:
    server.control(Setup(pace=Pace(first=0.02, step=0.005)))
    options = msgspec.structs.replace(QUICK, concurrency=(4,), output=Tokens(32))
    (point,) = sweep(server.url, (100,), options, sink=nothing).points
    shown = figures(point)
    assert shown.total_rate is not None
    assert shown.decode_rate is not None
    assert shown.decode_rate.count == 2, "requests sent together are one value"
    assert shown.total_rate.value == pytest.approx(4 * shown.decode_rate.value, rel=0.25)


def test_requests_at_a_rate_count_from_when_they_were_due(server: GroundTruth) -> None:
    server.control(Setup(pace=Pace(first=0.02, step=0.001)))
    options = msgspec.structs.replace(QUICK, rates=(40.0,), requests=12)
    (point,) = sweep(server.url, (100,), options, sink=nothing).points
    assert point.invalid is None
    assert len({sample.due for sample in point.measured}) == 12
    assert all(sample.sent >= sample.due for sample in point.measured)
    shown = figures(point)
    assert shown.ttft is not None
    assert shown.ttft_due is not None
    assert shown.ttft_due.value >= shown.ttft.value


def test_sanity_is_asked_for(server: GroundTruth) -> None:
    (point,) = sweep(server.url, (1000,), msgspec.structs.replace(QUICK, sanity=True), sink=nothing).points
    assert point.invalid is None
    assert any("planted fact is not found even here" in flag for flag in point.flags)


def test_a_restart_between_two_depths_is_noticed(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST))

    def sink(point: Point) -> None:
        if point.asked == 100 and not point.open:
            server.restart()

    result = sweep(server.url, (100, 200, 300), QUICK, sink=sink)
    assert result.points[0].invalid is None
    assert [point.invalid for point in result.points[1:]] == ["the server was restarted meanwhile"]
    assert result.stopped == "the server was restarted meanwhile"
