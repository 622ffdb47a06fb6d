"""Streams that something gathers, and counts that contradict themselves: unknown is shown as unknown."""

import pytest

from draftmark.explain import explain
from draftmark.physics.figures import figures
from draftmark.sample import Arrival, Point, Sample
from draftmark.sweep.dialect import Dialect
from draftmark.sweep.events import read
from draftmark.sweep.judge import Judge
from draftmark.units import Seconds, Tokens

from .hostile import event, token

JUDGE = Judge(dialect=Dialect(route="/v1/completions", model="m", token_ids=False), mode="cold", chunk_cost=1e-6)


def sample(*arrivals: tuple[float, int | None], completion: int | None = None, due: float = 0.0) -> Sample:
    last = arrivals[-1][1] if completion is None else completion
    return Sample(
        due=Seconds(due),
        sent=Seconds(due),
        arrivals=tuple(
            Arrival(at=Seconds(at), tokens=None if count is None else Tokens(count)) for at, count in arrivals
        ),
        ended=Seconds(arrivals[-1][0]),
        prompt_tokens=Tokens(100),
        cached_tokens=Tokens(0),
        completion_tokens=None if last is None else Tokens(last),
        counted_by="usage per chunk",
    )


def point(*samples: Sample) -> Point:
    made = Point(asked=Tokens(100), output=Tokens(16), concurrency=1, samples=samples)
    return Point(
        asked=made.asked,
        output=made.output,
        concurrency=1,
        samples=samples,
        invalid=JUDGE.invalid(made, ()),
        flags=JUDGE.flags(made, ()),
    )


def test_all_chunks_at_one_moment_tell_neither_steps_nor_a_prefill() -> None:
    gathered = point(sample(*((0.5, count) for count in range(1, 17))))
    shown = figures(gathered)
    assert gathered.invalid is None
    assert any("gathers its stream" in flag and "unknown" in flag for flag in gathered.flags)
    assert (shown.decode_time, shown.step_time, shown.decode_rate, shown.tokens_a_step) == (None,) * 4
    assert shown.prefill_rate is None
    assert shown.ttft is not None


def test_few_pieces_of_many_chunks_are_flagged_and_their_rate_is_of_what_came_later() -> None:
    chunks = [(0.5, count) for count in range(1, 9)] + [(0.7, count) for count in range(9, 17)]
    shown = figures(gathered := point(sample(*chunks)))
    assert any("16 chunks came at 2 moments" in flag for flag in gathered.flags)
    assert shown.decode_rate is not None
    assert shown.decode_rate.value == pytest.approx(8 / 0.2)


def test_a_stream_of_its_own_pace_is_not_flagged() -> None:
    assert point(sample(*((0.5 + 0.02 * count, count) for count in range(1, 17)))).flags == ()


@pytest.mark.parametrize(
    "counts",
    [(16, 16, 16, 16), (1, 2, 3, 16), (4, 3, 2, 1)],
    ids=["the sum with every chunk", "a third of what it claims", "falling"],
)
def test_counts_that_contradict_themselves_do_not_count(counts: tuple[int, ...]) -> None:
    events = [(0.1 * index, token(count, prompt=100)) for index, count in enumerate(counts[:-1])]
    events += [(0.4, event(choices=[{"index": 0, "text": " tide"}])), (0.5, token(counts[-1], prompt=100))]
    stream = read(events, 0.0)
    assert {arrival.tokens for arrival in stream.arrivals[:-1]} == {None}


def test_what_sweep_shows_and_what_explain_uses_are_the_same_points() -> None:
    known = point(*(sample((0.5, 1), (0.5 + 0.1 * span, 16), due=span) for span in (1.0, 2.0, 4.0, 5.0)))
    (row,) = explain([known]).rows
    rate = figures(known).decode_rate
    assert rate is not None
    assert rate.value == pytest.approx(1 / row.per_token), "for an even number of requests too"
    tokens, step = figures(known).tokens_a_step, figures(known).step_time
    assert tokens is not None
    assert step is not None
    assert rate.value == pytest.approx(tokens.value / step.value)
    unknown = point(sample((0.5, None), (0.6, None), (0.7, 16)))
    assert any("no use to `explain`" in flag for flag in unknown.flags)
    with pytest.raises(ValueError, match="no valid point"):
        explain([unknown])


def test_a_point_of_few_and_noisy_samples_is_too_noisy_to_be_used() -> None:
    noisy = point(*(sample((0.5, 1), (0.5 + span, 16), due=span) for span in (0.1, 1.0, 8.0)))
    calm = point(*(sample((0.5, 1), (0.5 + span, 16), due=span) for span in (1.0, 1.01, 1.02)))
    assert noisy.noisy
    assert not calm.noisy
    step = figures(noisy).step_time
    assert step is not None
    assert step.low is not None
    assert step.low > 0
