"""What is told of a point under a rate."""

import pytest

from draftmark.sample import Arrival, Point, Sample
from draftmark.sweep.dialect import Dialect
from draftmark.sweep.judge import Judge
from draftmark.units import Seconds, Tokens

JUDGE = Judge(
    dialect=Dialect(route="/v1/completions", model="m", token_ids=True, reports_cached=True),
    mode="cold",
    chunk_cost=0.0,
)


def waited(due: float, wait: float) -> Sample:
    return Sample(
        due=Seconds(due),
        sent=Seconds(due),
        arrivals=(Arrival(at=Seconds(wait), tokens=Tokens(1)), Arrival(at=Seconds(wait + 0.1), tokens=Tokens(2))),
        ended=Seconds(wait + 0.1),
        prompt_tokens=Tokens(100),
        cached_tokens=Tokens(0),
        completion_tokens=Tokens(2),
        counted_by="usage per chunk",
    )


def flags(waits: list[float], rate: float | None) -> str:
    samples = tuple(waited(index * 0.1, wait) for index, wait in enumerate(waits))
    point = Point(asked=Tokens(100), output=Tokens(2), concurrency=1, samples=samples, rate=rate)
    return " ".join(JUDGE.flags(point, ()))


@pytest.mark.parametrize("requests", [6, 20, 200])
def test_a_server_that_falls_behind_is_flagged(requests: int) -> None:
    assert "the server falls behind at 10 a second" in flags([0.1 * (index + 1) for index in range(requests)], 10.0)


@pytest.mark.parametrize(
    ("waits", "rate"),
    [
        ([0.5] * 20, 10.0),
        ([0.5, 0.9] * 10, 10.0),
        ([0.9] * 10 + [0.5] * 10, 10.0),
        ([0.1, 0.2, 0.4, 0.8, 1.6], 10.0),
        ([0.1 * (index + 1) for index in range(20)], None),
    ],
    ids=["steady", "changing", "warming up", "too few", "without a rate"],
)
def test_one_that_keeps_up_is_not(waits: list[float], rate: float | None) -> None:
    assert "falls behind" not in flags(waits, rate)
