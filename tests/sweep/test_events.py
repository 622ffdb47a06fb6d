import random

import pytest

from draftmark.selftest.schedule import SHAPES, Answer, Shape, schedule, steps
from draftmark.sweep.events import payloads, read, said_by

CHAT_ONLY = {"role chunk", "reasoning", "reasoning_content"}


def stream(shape: Shape, output: int = 32) -> list[tuple[float, bytes, int | None]]:
    answer = Answer(
        chat=shape in CHAT_ONLY,
        prompt_tokens=100,
        cached_tokens=0,
        output=output,
        usage=True,
        usage_per_chunk=True,
    )
    return [(send.at, send.data, send.tokens) for send in schedule(shape, answer, ttft=0.5, step=0.02)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_as_it_was_sent(shape: Shape) -> None:
    sends = stream(shape)
    seen = read([(at, data) for at, data, _ in sends], 0.0)
    truth = [(at, tokens) for at, _, tokens in sends if tokens is not None]
    assert [arrival.at for arrival in seen.arrivals] == [at for at, _ in truth]
    assert seen.done
    assert seen.error is None
    if shape == "no usage":
        assert {arrival.tokens for arrival in seen.arrivals} == {None}
        assert seen.completion_tokens is None
    else:
        assert [arrival.tokens for arrival in seen.arrivals] == [tokens for _, tokens in truth]
        assert (seen.prompt_tokens, seen.completion_tokens) == (100, 32)


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_may_be_cut_anywhere(shape: Shape) -> None:
    whole = b"".join(data for _, data, _ in stream(shape))
    order = random.Random(7)
    pieces, start = [], 0
    while start < len(whole):
        end = start + order.randint(1, 40)
        pieces.append((0.0, whole[start:end]))
        start = end
    assert [payload for _, payload in payloads(pieces)] == [payload for _, payload in payloads([(0.0, whole)])]


def test_reasoning_is_output_and_the_answer_is_told_apart() -> None:
    for shape in ("reasoning", "reasoning_content"):
        seen = read([(at, data) for at, data, _ in stream(shape)], 0.0)
        assert seen.arrivals[0].at == 0.5
        assert seen.answer_at is not None
        assert seen.answer_at > 0.5


def test_several_tokens_a_chunk_with_usage_at_the_end_only_leave_a_bound() -> None:
    answer = Answer(chat=False, prompt_tokens=9, cached_tokens=None, output=32, usage=True, usage_per_chunk=False)
    sends = schedule("speculative", answer, ttft=0.5, step=0.02)
    seen = read([(send.at, send.data) for send in sends], 0.0)
    assert seen.arrivals[0].tokens is None
    assert seen.completion_tokens == 32
    assert seen.counted_by == "usage at the end"


def test_an_error_event_and_rubbish_are_errors() -> None:
    assert "out of memory" in str(read([(0.0, b'data: {"error": {"message": "out of memory"}}\n\n')], 0.0).error)
    assert "not understood" in str(read([(0.0, b"data: {nonsense\n\n")], 0.0).error)


@pytest.mark.parametrize("opening", [b"[", b'{"x": '])
def test_what_is_nested_too_deeply_is_an_error_and_no_crash(opening: bytes) -> None:
    deep = b'{"error": ' + opening * 100_000
    assert "not understood" in str(read([(0.0, b"data: " + deep + b"\n\n")], 0.0).error)
    assert said_by(deep) is None


def test_steps_add_up() -> None:
    for shape in SHAPES:
        for output in (1, 16, 31):
            assert sum(steps(shape, output)) == output
