"""The HTTP interface: OpenAI's completions and chat, and what measuring needs besides."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from draftmark.embedded.engine import Engine, Request
from draftmark.embedded.generation import Sampler, TextStream
from draftmark.embedded.openai import ApiError, Body, Message, Reply, read_body

DEFAULT_OUTPUT: Final = 16
"""Tokens of a completion that names no number, as OpenAI has it; a chat may fill the context."""


class Api:
    """The paths of one server; `info` is what /server_info tells: everything that was settled at start."""

    def __init__(self, engine: Engine, tokenizer: Any, info: dict[str, Any]) -> None:
        self.engine, self.info, self._tokenizer = engine, info, tokenizer
        self._name: str = info["served_model_name"]

    def application(self) -> Starlette:
        """The ASGI application."""
        model = {"id": self._name, "object": "model", "created": int(self.info["started"]), "owned_by": "draftmark"}
        model |= {"root": self.info["model"], "max_model_len": self.engine.context}
        get: dict[str, Any] = {
            "/health": JSONResponse({"status": "ready"}),
            "/v1/models": JSONResponse({"object": "list", "data": [model]}),
            "/server_info": JSONResponse(self.info),
            "/metrics": self._metrics,
        }
        post = {
            "/v1/completions": self._completion,
            "/v1/chat/completions": self._chat,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }
        return Starlette(
            routes=[
                *(Route(path, answer, methods=["GET"]) for path, answer in get.items()),
                *(Route(path, answer, methods=["POST"]) for path, answer in post.items()),
            ],
            exception_handlers={HTTPException: _refuse},
        )

    async def _metrics(self, _: HttpRequest) -> Response:
        return Response(generate_latest(self.engine.metrics), media_type="text/plain; version=0.0.4")

    async def _completion(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        if body.prompt is None:
            raise ApiError(422, "the body has no field prompt", param="prompt")
        prompt = self._prompt_tokens(body.prompt, body)
        return await self._answer(http, body, prompt, DEFAULT_OUTPUT, chat=False)

    async def _chat(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        if body.messages is None:
            raise ApiError(422, "the body has no field messages", param="messages")
        prompt = self._chat_tokens(body.messages)
        return await self._answer(http, body, prompt, max(self.engine.limit - len(prompt), 1), chat=True)

    async def _tokenize(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        if body.prompt is None:
            tokens = self._chat_tokens(body.messages or [])
        else:
            tokens = self._prompt_tokens(body.prompt, body)
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": self.engine.context})

    async def _detokenize(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        if body.tokens is None:
            raise ApiError(422, "the body has no field tokens", param="tokens")
        return JSONResponse({"prompt": self._tokenizer.decode(self._known(body.tokens))})

    async def _body(self, http: HttpRequest) -> Body:
        body = read_body(await http.body())
        if body.model not in {None, self._name}:
            cause = f"no model {body.model!r} here; it serves {self._name!r}"
            raise ApiError(404, cause, param="model", code="model_not_found")
        return body

    def _prompt_tokens(self, prompt: str | list[int | str | list[int]], body: Body) -> list[int]:
        """Token ids of a prompt: a text, token ids, or a list with one of either."""
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            prompt = prompt[0] if isinstance(prompt[0], str) else [*prompt[0]]
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt, add_special_tokens=body.add_special_tokens).input_ids)
        tokens = [token for token in prompt if isinstance(token, int)]
        if len(tokens) < len(prompt):
            raise ApiError(400, f"{len(prompt)} prompts in one request are not served; send one each", param="prompt")
        return self._known(tokens)

    def _chat_tokens(self, messages: list[Message]) -> list[int]:
        if not self._tokenizer.chat_template:
            raise ApiError(400, f"{self._name} has no chat template; use /v1/completions", param="messages")
        plain = [{"role": message.role, "content": message.content} for message in messages]
        text = self._tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=False)
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _known(self, tokens: list[int]) -> list[int]:
        """The same tokens, where all are in the vocabulary."""
        vocabulary = self.engine.model.config.get_text_config(decoder=True).vocab_size
        for token in tokens:
            if not 0 <= token < vocabulary:
                raise ApiError(400, f"token {token} is not in the vocabulary of {vocabulary}", param="prompt")
        return tokens

    async def _answer(self, http: HttpRequest, body: Body, prompt: list[int], default: int, *, chat: bool) -> Response:
        """The reply to a prompt, streamed or whole; `default` is the limit where the client names none."""
        named = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        limit = default if named is None else named
        self._check_size(len(prompt), limit)
        sampler = Sampler(temperature=body.temperature, top_p=body.top_p, top_k=body.top_k, seed=body.seed)
        stops = [body.stop] if isinstance(body.stop, str) else body.stop
        text = TextStream(self._tokenizer, [stop for stop in stops if stop])
        request = Request(prompt=prompt, limit=limit, sampler=sampler, text=text, ignore_eos=body.ignore_eos)
        reply, pieces = Reply(self._name, prompt, body, chat=chat), self.engine.generate(request)
        if body.stream:
            return StreamingResponse(reply.events(pieces), media_type="text/event-stream")
        return await _unless_gone(http, reply.whole(pieces))

    def _check_size(self, prompt: int, limit: int) -> None:
        if prompt < 1:
            raise ApiError(400, "the prompt is empty", param="prompt")
        if limit < 1:
            raise ApiError(400, f"max_tokens={limit} is less than 1", param="max_tokens")
        asked, engine = f"{prompt} prompt tokens and max_tokens={limit} make {prompt + limit} tokens", self.engine
        if prompt + limit > engine.context:
            cause = f"{asked}, beyond the context of {engine.context} tokens"
            raise ApiError(400, cause, code="context_length_exceeded")
        if prompt + limit > engine.pool.tokens:
            raise ApiError(400, f"{asked}, beyond the pool of {engine.pool.tokens} tokens", code="pool_exceeded")


async def _unless_gone(http: HttpRequest, answer: Coroutine[Any, Any, Response]) -> Response:
    """The answer; it is cancelled where the client leaves first, and refused where the server ends first."""
    answering, leaving = asyncio.create_task(answer), asyncio.create_task(_gone(http))
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if leaving.done() and not leaving.cancelled():
            return Response(status_code=499)
        return ApiError(503, "the server is ending", code="ending").response()
    finally:
        leaving.cancel()


async def _gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _refuse(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if not isinstance(error, ApiError):
        error = ApiError(error.status_code, f"{http.method} {http.url.path}: {error.detail}")
    return error.response()
