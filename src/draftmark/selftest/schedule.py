"""What the ground-truth server sends and when: every awkward shape of a stream, on an exact schedule. Pure."""

import json
from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

Shape = Literal[
    "plain",
    "speculative",
    "first chunk of four",
    "first chunk of eight",
    "role chunk",
    "reasoning_content",
    "reasoning",
    "keep-alive",
    "split utf-8",
    "split lines",
    "empty text",
    "token ids",
    "usage at the end",
    "no usage",
    "coalesced",
]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)

_SPECULATIVE: Final = (1, 4, 2, 3, 3, 1, 4, 2)
"""Tokens of successive verify steps: 2.5 in the mean."""
SEVERAL: Final = frozenset(SHAPES) - {"plain", "usage at the end", "no usage", "keep-alive"}
"""Shapes with several tokens a chunk."""
APART: Final = 0.002
"""Seconds between the two parts of a split event, so that they are read apart."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated speed: seconds to the first chunk, then seconds a step; both may grow with the prompt."""

    first: float = 0.5
    step: float = 0.02
    first_a_token: float = 0.0
    step_a_token: float = 0.0

    def ttft(self, tokens: int) -> float:
        """Seconds until the first chunk, `tokens` being what is not cached."""
        return self.first + self.first_a_token * tokens

    def step_time(self, depth: int) -> float:
        """Seconds of one step at a depth."""
        return self.step + self.step_a_token * depth


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to write `at` seconds after the request was read; `tokens` is what the client has when it has read them.

    `tokens` is None for bytes that complete no output: roles, keep-alives, the usage, halves of a line.
    """

    at: float
    data: bytes
    tokens: int | None = None


def steps(shape: Shape, output: int) -> Iterator[int]:
    """Tokens of each chunk, adding up to `output`."""
    left, index = output, 0
    while left > 0:
        if shape not in SEVERAL:
            size = 1
        elif index == 0 and shape.startswith("first chunk"):
            size = 4 if shape.endswith("four") else 8
        else:
            size = _SPECULATIVE[index % len(_SPECULATIVE)]
        size = min(size, left)
        yield size
        left -= size
        index += 1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered: the API, the counts stated (which may be lies), and what of the usage the client asked for."""

    chat: bool
    prompt_tokens: int
    cached_tokens: int | None
    output: int
    usage: bool
    usage_per_chunk: bool


def schedule(shape: Shape, answer: Answer, *, ttft: float, step: float) -> Iterator[Send]:
    """The stream, in order."""
    if answer.chat and shape in {"role chunk", "reasoning", "reasoning_content"}:
        yield Send(at=0.0, data=_event(_chat({"role": "assistant", "content": ""})))
    at, done = ttft, 0
    last = sum(1 for _ in steps(shape, answer.output)) - 1
    pending: list[Send] = []
    for index, size in enumerate(steps(shape, answer.output)):
        done += size
        if shape == "keep-alive":
            yield Send(at=at - step / 2, data=b": keep-alive\n\n")
        event = _event(_chunk(shape, answer, done, size, "length" if index == last else None))
        pending += _pieces(shape, at, event, done)
        if shape != "coalesced" or index % 2 or index == last:
            yield from (msgspec.structs.replace(send, at=max(send.at, at)) for send in pending)
            pending = []
        at += step
    if answer.usage and shape != "no usage":
        yield Send(at=at - step, data=_event({"choices": [], "usage": _usage(answer, answer.output)}))
    yield Send(at=at - step, data=b"data: [DONE]\n\n")


def _pieces(shape: Shape, at: float, event: bytes, done: int) -> list[Send]:
    """The event, whole or in two parts a moment apart; the second part completes it."""
    if shape == "split utf-8":
        cut = event.index("→".encode()) + 1
    elif shape == "split lines":
        cut = len(event) // 2
    else:
        return [Send(at=at, data=event, tokens=done)]
    return [Send(at=at, data=event[:cut]), Send(at=at + APART, data=event[cut:], tokens=done)]


def _chunk(shape: Shape, answer: Answer, done: int, size: int, finish: str | None) -> dict[str, object]:
    text = (" →" if shape == "split utf-8" else " tide") * size
    if shape == "empty text" and done % 3 == 0:
        text = ""
    event: dict[str, object]
    if answer.chat:
        name = shape if shape in {"reasoning", "reasoning_content"} and done <= answer.output // 2 else "content"
        event = _chat({name: text}, finish)
    else:
        event = {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    if shape == "token ids":
        choices = event["choices"]
        assert isinstance(choices, list)
        choices[0]["token_ids"] = list(range(size))
    elif answer.usage_per_chunk and shape not in {"usage at the end", "no usage"}:
        event["usage"] = _usage(answer, done)
    return event


def _chat(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"object": "chat.completion.chunk", "choices": choices}


def _usage(answer: Answer, done: int) -> dict[str, object]:
    usage: dict[str, object] = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": done,
        "total_tokens": answer.prompt_tokens + done,
    }
    if answer.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": answer.cached_tokens}
    return usage


def _event(body: dict[str, object]) -> bytes:
    head = {"id": "cmpl-ground-truth", "created": 0, "model": "truth"}
    return b"data: " + json.dumps(head | body, ensure_ascii=False).encode() + b"\n\n"
