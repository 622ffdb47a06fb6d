"""OpenAI's interface as far as the engine serves it: request bodies, errors, and replies whole or streamed."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final
from uuid import uuid4

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from draftmark.embedded.generation import Piece

NEUTRAL: Final[dict[str, object]] = {
    **dict.fromkeys(("n", "best_of", "repetition_penalty"), 1),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_p", "min_tokens", "top_logprobs"), 0),
    **dict.fromkeys(("echo", "logprobs"), False),
    "suffix": "",
    "logit_bias": {},
    "tools": [],
    "response_format": {"type": "text"},
}
"""Fields that would change the output and are not served, with the value that changes nothing."""


class ApiError(HTTPException):
    """A request that is refused: HTTP status, and the fields of OpenAI's error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message)
        self.param, self.code = param, code

    def response(self) -> Response:
        """OpenAI's error object."""
        kind = "server_error" if self.status_code >= 500 else "invalid_request_error"
        error = {"message": self.detail, "type": kind, "param": self.param, "code": self.code}
        return JSONResponse({"error": error}, self.status_code)


class StreamOptions(msgspec.Struct):
    """What a stream carries besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(msgspec.Struct):
    """One message of a chat; parts are joined."""

    role: str
    content: str | list[dict[str, Any]]

    def __post_init__(self) -> None:
        if isinstance(self.content, list):
            if not all(isinstance(part.get("text"), str) for part in self.content):
                raise ApiError(400, "only text parts are served", param="messages")
            self.content = "".join(part["text"] for part in self.content)


class Body(msgspec.Struct):
    """Every field that some path serves, with OpenAI's defaults."""

    model: str | None = None
    prompt: str | list[int | str | list[int]] | None = None
    messages: list[Message] | None = None
    tokens: list[int] | None = None
    add_special_tokens: bool = True
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: str | list[str] = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    ignore_eos: bool = False
    return_token_ids: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise ApiError(400, f"temperature {self.temperature} is not from 0 to 2", param="temperature")
        if not 0 < self.top_p <= 1:
            raise ApiError(400, f"top_p {self.top_p} is not above 0 and at most 1", param="top_p")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ApiError(400, f"seed {self.seed} is not a 64-bit number", param="seed")


def read_body(raw: bytes) -> Body:
    """A request's body; null stands for the default.

    Raises:
        ApiError: 400 for what is not JSON or asks for what is not served, 422 for a field of a wrong type.
    """
    try:
        fields = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if value is not None}
        for name, neutral in NEUTRAL.items():
            if fields.get(name, neutral) != neutral:
                raise ApiError(400, f"{name}={fields[name]!r} is not served by the embedded engine", param=name)
    try:
        return msgspec.convert(fields, Body)
    except msgspec.ValidationError as error:
        raise ApiError(422, str(error)) from error


class Reply:
    """One reply, whole or as a stream of events."""

    def __init__(self, model: str, prompt: list[int], body: Body, *, chat: bool) -> None:
        self._prompt, self._body, self._chat = prompt, body, chat
        prefix, self._object = ("chatcmpl", "chat.completion") if chat else ("cmpl", "text_completion")
        self._frame = {"id": f"{prefix}-{uuid4().hex}", "created": int(time.time()), "model": model}

    def _choice(self, piece: Piece, *, content: str, first: bool) -> dict[str, Any]:
        """The choice that a piece makes; `content` is the field of a chat that holds it."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": piece.finish}
        if self._chat:
            choice[content] = {**({"role": "assistant"} if first else {}), "content": piece.text}
        else:
            choice["text"] = piece.text
        if self._body.return_token_ids:
            choice |= {"token_ids": piece.tokens, **({"prompt_token_ids": self._prompt} if first else {})}
        return choice

    def _usage(self, completion: int) -> dict[str, object]:
        """OpenAI's usage object; nothing is ever cached, since there is no prefix cache."""
        prompt = len(self._prompt)
        counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return {**counts, "prompt_tokens_details": {"cached_tokens": 0}}

    async def whole(self, pieces: AsyncGenerator[Piece, None]) -> Response:
        """The reply once it is whole."""
        async with aclosing(pieces) as stream:
            made = [piece async for piece in stream]
        tokens = [token for piece in made for token in piece.tokens]
        joined = Piece(tokens, "".join(piece.text for piece in made), made[-1].finish)
        choice = self._choice(joined, content="message", first=True)
        usage = self._usage(len(tokens))
        return JSONResponse({**self._frame, "object": self._object, "choices": [choice], "usage": usage})

    async def events(self, pieces: AsyncGenerator[Piece, None]) -> AsyncIterator[bytes]:
        """Server-sent events: one a token, also where it gave no text yet, so that events can be counted."""
        frame = {**self._frame, "object": "chat.completion.chunk" if self._chat else self._object}
        options, count = self._body.stream_options, 0
        async with aclosing(pieces) as stream:
            async for piece in stream:
                choice = self._choice(piece, content="delta", first=count == 0)
                count += 1
                usage = {"usage": self._usage(count)} if options.continuous_usage_stats else {}
                yield _event({**frame, "choices": [choice], **usage})
        if options.include_usage:
            yield _event({**frame, "choices": [], "usage": self._usage(count)})
        yield b"data: [DONE]\n\n"


def _event(content: object) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
