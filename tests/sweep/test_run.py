from statistics import median
from typing import Literal

import msgspec
import pytest

from draftmark.errors import BadInput
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
    assert median(late) < 0.02
    if shape == "no usage":
        assert sample.decode_rate is None
        assert result.points[0].flags
    else:
        assert [arrival.tokens for arrival in sample.arrivals] == [tokens for _, tokens in truth.sends]
        assert sample.decode_tokens == 32 - truth.sends[0][1]


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
