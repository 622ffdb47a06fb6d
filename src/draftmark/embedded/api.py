"""The HTTP interface: OpenAI's completions and chat, and what measuring needs besides."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from draftmark.embedded.engine import Engine, Request, Token
from draftmark.embedded.generation import Sampling, TextStream
from draftmark.embedded.metrics import Metrics
from draftmark.embedded.protocol import (
    ApiError,
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    read_body,
)
from draftmark.embedded.replies import Piece, Replies, reply

DEFAULT_OUTPUT: Final = 16
"""Tokens of a completion that names no number, as OpenAI has it; a chat may fill the context."""


class Api:
    """Routes of one server. `engine` is None until the model is loaded; until then all but /health says so with 503."""

    def __init__(self, *, name: str, metrics: Metrics, info: dict[str, object]) -> None:
        self.engine: Engine | None = None
        self._name = name
        self._metrics = metrics
        self._info = info
        self._started = int(time.time())

    def application(self) -> Starlette:
        """The ASGI application."""
        posts: tuple[tuple[str, Callable[[HttpRequest], Awaitable[Response]]], ...] = (
            ("/v1/completions", self.completions),
            ("/v1/chat/completions", self.chat),
            ("/tokenize", self.tokenize),
            ("/detokenize", self.detokenize),
        )
        gets: tuple[tuple[str, Callable[[HttpRequest], Awaitable[Response]]], ...] = (
            ("/health", self.health),
            ("/v1/models", self.models),
            ("/server_info", self.server_info),
            ("/metrics", self.metrics),
        )
        return Starlette(
            routes=[Route(path, call, methods=["POST"]) for path, call in posts]
            + [Route(path, call, methods=["GET"]) for path, call in gets],
            exception_handlers={ApiError: _refuse, HTTPException: _refuse_http},
        )

    def _ready(self) -> Engine:
        if self.engine is None:
            raise ApiError(503, "the model is being loaded; /health tells when it is ready", code="loading")
        return self.engine

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._name:
            raise ApiError(
                404, f"no model {name!r} here; it serves {self._name!r}", param="model", code="model_not_found"
            )

    async def health(self, _: HttpRequest) -> Response:
        """200 once requests are served."""
        self._ready()
        return reply({"status": "ready"})

    async def models(self, _: HttpRequest) -> Response:
        """The one model, with the most tokens a request may have."""
        loaded = self._ready().loaded
        model = {
            "id": self._name,
            "object": "model",
            "created": self._started,
            "owned_by": "draftmark",
            "root": self._info["model"],
            "max_model_len": loaded.context,
        }
        return reply({"object": "list", "data": [model]})

    async def server_info(self, _: HttpRequest) -> Response:
        """Everything that was settled at start."""
        loaded = self._ready().loaded
        settled = {
            "context_length": loaded.context,
            "chunk": loaded.chunk,
            "max_running": loaded.max_running,
            "pool_tokens": loaded.pool.tokens,
            "pool_bytes": loaded.pool.bytes,
            "bytes_per_token": loaded.token_bytes,
            "weight_bytes": loaded.weights,
            "mem_fraction": loaded.fraction,
            "dtype": loaded.dtype,
            "prefix_cache": False,
        }
        return reply({**self._info, **settled})

    async def metrics(self, _: HttpRequest) -> Response:
        """Prometheus' text format."""
        self._ready()
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def tokenize(self, http: HttpRequest) -> Response:
        """Token ids of a text or a chat."""
        body = read_body(await http.body(), TokenizeBody)
        self._check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        if body.messages is not None:
            tokens = self._chat_tokens([message.plain() for message in body.messages])
        else:
            tokens = self._text_tokens(body.prompt or "", special=body.add_special_tokens)
        return reply({"tokens": tokens, "count": len(tokens), "max_model_len": self._ready().loaded.context})

    async def detokenize(self, http: HttpRequest) -> Response:
        """Text of token ids."""
        body = read_body(await http.body(), DetokenizeBody)
        self._check_model(body.model)
        self._check_tokens(body.tokens)
        return reply({"prompt": self._ready().loaded.tokenizer.decode(body.tokens)})

    def _text_tokens(self, text: str, *, special: bool = True) -> list[int]:
        return list(self._ready().loaded.tokenizer(text, add_special_tokens=special).input_ids)

    def _chat_tokens(self, messages: list[dict[str, str]]) -> list[int]:
        tokenizer = self._ready().loaded.tokenizer
        if not tokenizer.chat_template:
            raise ApiError(400, f"{self._name} has no chat template; use /v1/completions", param="messages")
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self._text_tokens(text, special=False)

    def _check_tokens(self, tokens: list[int]) -> None:
        vocabulary = self._ready().loaded.vocabulary
        wrong = next((token for token in tokens if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise ApiError(400, f"token {wrong} is not in the vocabulary of {vocabulary}", param="prompt")

    def _prompt_tokens(self, prompt: str | list[int | str | list[int]]) -> list[int]:
        """Token ids of a prompt: a text, token ids, or a list with one of either."""
        first = prompt[0] if len(prompt) == 1 else None
        if isinstance(prompt, list) and isinstance(first, str | list):
            prompt = first if isinstance(first, str) else [*first]
        if isinstance(prompt, str):
            return self._text_tokens(prompt)
        tokens = [token for token in prompt if isinstance(token, int)]
        if len(tokens) < len(prompt):
            raise ApiError(400, f"{len(prompt)} prompts in one request are not served; send one each", param="prompt")
        self._check_tokens(tokens)
        return tokens

    async def completions(self, http: HttpRequest) -> Response:
        """POST /v1/completions."""
        body = read_body(await http.body(), CompletionBody)
        self._check_model(body.model)
        self._ready()
        prompt = self._prompt_tokens(body.prompt)
        return await self._answer(http, body, prompt, DEFAULT_OUTPUT if body.limit is None else body.limit)

    async def chat(self, http: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        body = read_body(await http.body(), ChatBody)
        self._check_model(body.model)
        prompt = self._chat_tokens([message.plain() for message in body.messages])
        room = max(self._ready().loaded.limit - len(prompt), 1)
        return await self._answer(http, body, prompt, room if body.limit is None else body.limit)

    async def _answer(self, http: HttpRequest, body: Body, prompt: list[int], limit: int) -> Response:
        self._check_size(len(prompt), limit)
        pieces = self._generate(body, prompt, limit, body.sampling())
        replies = Replies(self._name, prompt, body, chat=isinstance(body, ChatBody))
        if body.stream:
            return StreamingResponse(replies.events(pieces), media_type="text/event-stream")
        return await _unless_gone(http, replies.whole(pieces))

    def _check_size(self, prompt: int, limit: int) -> None:
        loaded = self._ready().loaded
        if prompt < 1:
            raise ApiError(400, "the prompt is empty", param="prompt")
        if limit < 1:
            raise ApiError(400, f"max_tokens={limit} is less than 1", param="max_tokens")
        asked = f"{prompt} prompt tokens and max_tokens={limit} make {prompt + limit} tokens"
        if prompt + limit > loaded.context:
            raise ApiError(
                400, f"{asked}, beyond the context of {loaded.context} tokens", code="context_length_exceeded"
            )
        if prompt + limit > loaded.pool.tokens:
            raise ApiError(400, f"{asked}, beyond the pool of {loaded.pool.tokens} tokens", code="pool_exceeded")

    async def _generate(
        self, body: Body, prompt: list[int], limit: int, sampling: Sampling
    ) -> AsyncGenerator[Piece, None]:
        """One piece a token, as the engine makes them; closing it takes the request back."""
        engine = self._ready()
        tokens: asyncio.Queue[Token] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(token: Token) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends, and nobody waits any more
                loop.call_soon_threadsafe(tokens.put_nowait, token)

        request = Request(tuple(prompt), limit, sampling, ignore_eos=body.ignore_eos, emit=emit)
        text = TextStream(engine.loaded.tokenizer, body.stops)
        engine.submit(request)
        try:
            for count in range(1, limit + 1):
                token = await tokens.get()
                part = text.feed(token.id, last=token.finish is not None)
                finish = "stop" if text.stopped else token.finish
                yield Piece(token.id, part, finish, count)
                if finish:
                    return
        finally:
            engine.cancel(request, reason="stop" if text.stopped else "cancelled")


async def _unless_gone(http: HttpRequest, answer: Awaitable[Response]) -> Response:
    """The answer; where the client leaves first, or the server ends, it is cancelled."""
    answering = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_gone(http))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else Response(status_code=499)
    except asyncio.CancelledError:
        return reply(ApiError(503, "the server is ending", code="ending").body(), 503)
    finally:
        for task in (answering, leaving):
            task.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _refuse(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return reply(error.body(), error.status)


async def _refuse_http(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _refuse(http, ApiError(error.status_code, f"{http.method} {http.url.path}: {error.detail}"))
