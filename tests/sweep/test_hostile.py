"""Whatever a server sends, the client ends, in one line, and shows nothing that a terminal would obey."""

import itertools
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftmark.errors import BadInput, DraftmarkError, EngineFailed
from draftmark.sample import Point
from draftmark.sweep import Asking, Event, Options, bounded, sweep
from draftmark.units import Tokens

from .hostile import MODELS, event, hostile, token

QUICK = Options(warm_up=0, repeats=1, most_repeats=1, output=Tokens(4))
MIB = 2**20


def nothing(point: Point) -> None:
    pass


def endless(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece)


ENDLESS = {
    "a line": b"x" * 65536,
    "a first event": b'data: {"choices": [' + b"1," * 30000,
    "tokens": token(1),
    "keep-alives": b": still here\n\n" * 5000,
}


@pytest.mark.parametrize("piece", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_given_up(piece: bytes) -> None:
    tracemalloc.start()
    with hostile(lambda _: endless(piece)) as url, pytest.raises(EngineFailed) as problem:
        sweep(url, (100,), QUICK, sink=nothing)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(problem.value)
    assert "bytes" in str(problem.value) or "does not end its stream" in str(problem.value)
    assert peak < 40 * MIB


def test_tokens_without_end_in_the_middle_of_a_sweep_are_given_up() -> None:
    asked = itertools.count()

    def generate(_: str) -> Iterator[bytes]:
        if next(asked) < 1:
            yield from (token(1), token(2), b"data: [DONE]\n\n")
        else:
            yield from endless(token(1))

    with hostile(generate) as url:
        result = sweep(url, (100,), QUICK, sink=nothing)
    assert "does not end its stream" in str(result.stopped)


def test_a_list_of_models_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LARGEST", MIB)
    with (
        hostile(lambda _: iter(()), models=lambda _: endless(b"x" * 65536)) as url,
        pytest.raises(BadInput, match="does not end"),
    ):
        sweep(url, (100,), QUICK, sink=nothing)


def silent(_: str) -> Iterator[bytes]:
    while True:
        time.sleep(0.05)
        yield b""


def dripping(_: str) -> Iterator[bytes]:
    while True:
        time.sleep(0.05)
        yield b" "


@pytest.mark.parametrize("models", [silent, dripping])
def test_models_that_never_come_are_given_up(models: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "ASK_SECONDS", 0.5)
    heard: list[Event] = []
    began = time.monotonic()
    with hostile(lambda _: iter(()), models=models) as url, pytest.raises(BadInput) as problem:  # type: ignore[arg-type]
        sweep(url, (100,), QUICK, sink=nothing, on_event=heard.append)
    assert time.monotonic() - began < 5
    assert "which models it serves" in str(problem.value)
    assert [type(one) for one in heard] == [Asking], "what is waited for is said first"


@pytest.mark.parametrize(
    "error",
    [
        event(error={"message": "CUDA out of memory", "code": 500}),
        event(error="CUDA out of memory"),
        event(object="error", message="CUDA out of memory", code=500),
        event(error={"message": "CUDA out of memory"}, choices=None),
        event(error={"message": "\x1b[31mCUDA out of memory" + "!" * 5000}).replace(b"\x1b[31m", b""),
    ],
)
@pytest.mark.parametrize("tokens", [0, 2])
def test_the_servers_own_words_lead(error: bytes, tokens: int) -> None:
    def generate(_: str) -> Iterator[bytes]:
        yield from (token(1 + done) for done in range(tokens))
        yield error

    with hostile(generate) as url, pytest.raises(EngineFailed) as problem:
        sweep(url, (100,), QUICK, sink=nothing)
    assert problem.value.cause.removeprefix("�[31m").startswith("CUDA out of memory")
    assert len(str(problem.value)) < 600


def test_a_long_refusal_is_cut_to_a_line() -> None:
    body = b'{"error": {"message": "' + b"no room\\n\\u001b]0;mine\\u0007 " * 300 + b'"}}'
    with hostile(lambda _: iter([body]), status=500) as url, pytest.raises(EngineFailed) as problem:
        sweep(url, (100,), QUICK, sink=nothing)
    text = str(problem.value)
    assert "no room" in text
    assert len(text) < 600
    assert text.isprintable()


def test_names_and_words_are_harmless_before_they_are_kept() -> None:
    name = "m\x1b[2J\x07\u202egpj"
    models = msgspec.json.encode({"data": [{"id": name, "max_model_len": -5}]})
    asked = itertools.count()

    def generate(_: str) -> Iterator[bytes]:
        text = "ti\x1b[8mde\n"
        for done in range(1, 5):
            usage = {"prompt_tokens": 9 if next(asked) < 4 else 100, "completion_tokens": done}
            yield event(choices=[{"index": 0, "text": text, "finish_reason": "\x1bc"}], usage=usage)

    heard: list[Event] = []
    with hostile(generate, models=lambda _: iter([models])) as url:
        result = sweep(url, (100,), QUICK, sink=nothing, on_event=heard.append)
    assert result.state.context is None, "no context is shorter than nothing"
    assert result.state.models[0].isprintable()
    (sample,) = result.points[0].samples
    assert sample.text is not None
    assert "\x1b" not in sample.text
    assert "de\n" in sample.text
    assert (sample.finish_reason or "\x1b").isprintable()
    assert result.dialect.model == name, "requests name it as the server does"


def test_counts_below_zero_are_unknown() -> None:
    with hostile(lambda _: iter([token(1, prompt=-7), token(-2, prompt=-7), b"data: [DONE]\n\n"])) as url:
        (point,) = sweep(url, (100,), QUICK, sink=nothing).points
    (sample,) = point.samples
    assert (sample.prompt_tokens, sample.completion_tokens) == (None, None)
    assert any("tokens are unproven" in flag for flag in point.flags)


def test_more_output_than_asked_for_is_no_valid_point() -> None:
    with hostile(lambda _: iter([token(20, prompt=100), token(40, prompt=100), b"data: [DONE]\n\n"])) as url:
        (point,) = sweep(url, (100,), QUICK, sink=nothing).points
    assert point.invalid == "asked for 4 tokens of output, the server counted 40"


@pytest.mark.parametrize("device", ["/dev/urandom", "/dev/zero"])
def test_a_text_or_tokenizer_that_does_not_end_is_refused(device: str) -> None:
    stream = [token(done, prompt=100) for done in (1, 2, 3, 4)]
    for options in (
        msgspec.structs.replace(QUICK, texts=(Path(device),)),
        msgspec.structs.replace(QUICK, tokenizer=Path(device)),
    ):
        with hostile(lambda _: iter(stream)) as url, pytest.raises(DraftmarkError, match=device):
            sweep(url, (100,), options, sink=nothing)


def test_models_are_read_from_a_sound_server() -> None:
    """The servers of this file would not pass for what they are if a sound one failed as well."""
    stream = [token(done, prompt=100) for done in (1, 2, 3, 4)] + [b"data: [DONE]\n\n"]
    with hostile(lambda _: iter(stream), models=lambda _: iter([MODELS])) as url:
        (point,) = sweep(url, (100,), QUICK, sink=nothing).points
    assert len(point.measured[0].arrivals) == 4
