"""Replies in OpenAI's format: whole, or as a stream of events."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import msgspec
from starlette.responses import Response

from draftmark.embedded.protocol import Body, usage


class Piece(msgspec.Struct, frozen=True):
    """What one token gave: its text so far as it may be sent, and why the output ended, on the last."""

    token: int
    text: str
    finish: str | None
    count: int


def reply(content: object, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")


class Replies:
    """One reply in OpenAI's format: whole, or as events of a stream, one a token."""

    def __init__(self, name: str, prompt: list[int], body: Body, *, chat: bool) -> None:
        self._prompt, self._body, self._chat = prompt, body, chat
        self._kind = "chat.completion" if chat else "text_completion"
        self._frame = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}",
            "created": int(time.time()),
            "model": name,
        }

    def _choice(self, text: str, tokens: list[int], finish: str | None, *, first: bool, delta: bool) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if self._chat:
            role = {"role": "assistant"} if first else {}
            choice["delta" if delta else "message"] = {**role, "content": text}
        else:
            choice["text"] = text
        if self._body.return_token_ids:
            choice["token_ids"] = tokens
            if first:
                choice["prompt_token_ids"] = self._prompt
        return choice

    def _usage(self, count: int) -> dict[str, object]:
        return usage(len(self._prompt), count)

    async def whole(self, pieces: AsyncGenerator[Piece, None]) -> Response:
        """The reply once it is whole."""
        async with aclosing(pieces) as stream:
            made = [piece async for piece in stream]
        text, tokens = "".join(piece.text for piece in made), [piece.token for piece in made]
        choice = self._choice(text, tokens, made[-1].finish, first=True, delta=False)
        return reply({**self._frame, "object": self._kind, "choices": [choice], "usage": self._usage(len(made))})

    async def events(self, pieces: AsyncGenerator[Piece, None]) -> AsyncIterator[bytes]:
        """Server-sent events: one a token, also where it gave no text yet, so that events can be counted."""
        options = self._body.stream_options
        frame = {**self._frame, "object": "chat.completion.chunk" if self._chat else self._kind}
        count = 0
        async with aclosing(pieces) as stream:
            async for piece in stream:
                count = piece.count
                choice = self._choice(piece.text, [piece.token], piece.finish, first=count == 1, delta=True)
                event = {**frame, "choices": [choice]}
                if options and options.continuous_usage_stats:
                    event["usage"] = self._usage(count)
                yield _event(event)
        if options and options.include_usage:
            yield _event({**frame, "choices": [], "usage": self._usage(count)})
        yield b"data: [DONE]\n\n"


def _event(content: object) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
