"""The engine: serves requests in turns, and counts what it does.

A turn is one chunk of prefill for the request that came first, and one token for every request past its prefill.
Requests wait, first come first served, until the pool has room for their prompt and all the output they may make.
The event loop keeps all this; torch alone runs on a thread of its own, so that HTTP is answered meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NoReturn

import msgspec
import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from transformers import Cache, PreTrainedModel

from draftmark.embedded.generation import Piece, Sampler, TextStream
from draftmark.embedded.pool import Pool, Slab

log: Final = logging.getLogger("draftmark.embedded")

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
THREAD: Final = ThreadPoolExecutor(max_workers=1)
"""Where torch runs: always the same thread, since torch starts workers of its own for each that calls it."""


class Request(msgspec.Struct, kw_only=True, eq=False):
    """One request and how far it is."""

    prompt: list[int]
    limit: int
    sampler: Sampler
    text: TextStream
    ignore_eos: bool
    pieces: asyncio.Queue[Piece] = msgspec.field(default_factory=asyncio.Queue)
    number: int = 0
    arrived: float = msgspec.field(default_factory=time.monotonic)
    output: list[int] = []
    cache: Slab | None = None
    ended: str | None = None
    """Why it takes no more turns."""


class Engine:
    """Serves requests with a model and a pool."""

    def __init__(
        self, model: PreTrainedModel, pool: Pool, end_tokens: frozenset[int], *, context: int, chunk: int, most: int
    ) -> None:
        self.model, self.pool, self._end_tokens = model, pool, end_tokens
        self.context, self._chunk, self._most = context, chunk, most
        self.activity = "idle"
        """What torch is doing, for the log where it fails."""
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._changed = asyncio.Event()
        self._count = 0
        self.metrics = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.metrics), partial(Counter, registry=self.metrics)
        gauge("draftmark_requests_running", "Requests being served").set_function(lambda: len(self._running))
        gauge("draftmark_requests_waiting", "Requests waiting for the pool").set_function(lambda: len(self._waiting))
        gauge("draftmark_pool_tokens", "Tokens of the pool").set(self.pool.tokens)
        gauge("draftmark_pool_used_tokens", "Tokens of the pool that are reserved").set_function(lambda: self.pool.used)
        self._prompt = counter("draftmark_prompt_tokens", "Prompt tokens prefilled")
        self._generated = counter("draftmark_generated_tokens", "Tokens generated")
        self._finished = counter("draftmark_requests_finished", "Requests ended", ["reason"])
        name, meaning = "draftmark_time_to_first_token_seconds", "From a request's arrival to its first token"
        self._ttft = Histogram(name, meaning, buckets=SECONDS, registry=self.metrics)

    @property
    def limit(self) -> int:
        """Most tokens, prompt and output together, of one request."""
        return min(self.context, self.pool.tokens)

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """One piece a token; closing it takes the request back. Prompt and limit must be within `limit`."""
        self._count += 1
        request.number = self._count
        self._waiting.append(request)
        self._changed.set()
        try:
            while (piece := await request.pieces.get()).finish is None:
                yield piece
            yield piece
        finally:
            request.ended = request.ended or "cancelled"
            self._changed.set()

    async def serve(self) -> NoReturn:
        """Take turns for ever."""
        while True:
            self._clear()
            self._admit()
            prefilling = [request for request in self._running if not request.output]
            decoding = [request for request in self._running if request.output]
            for request in (*prefilling[:1], *decoding):
                if not request.ended:
                    token = await asyncio.get_running_loop().run_in_executor(THREAD, self._advance, request)
                    self.activity = "idle"
                    if token is not None:
                        self._take(request, token)
            if not self._running:
                self._changed.clear()
                await self._changed.wait()

    def _clear(self) -> None:
        for request in (*self._running, *self._waiting):
            if request.ended:
                if request.cache is not None:
                    self.pool.release(request.cache)
                self._finished.labels(reason=request.ended).inc()
                log.info("request=%d finished reason=%s output=%d", request.number, request.ended, len(request.output))
        self._running = [request for request in self._running if not request.ended]
        self._waiting = [request for request in self._waiting if not request.ended]

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._most:
            request = self._waiting[0]
            request.cache = self.pool.reserve(len(request.prompt) + request.limit)
            if request.cache is None:
                return
            self._running.append(self._waiting.pop(0))
            waited = time.monotonic() - request.arrived
            log.info(
                "request=%d admitted prompt=%d limit=%d pool_used=%d waited=%.3f",
                request.number, len(request.prompt), request.limit, self.pool.used, waited,
            )  # fmt: skip

    @torch.inference_mode()
    def _advance(self, request: Request) -> int | None:
        """One forward pass over the next tokens that are not in the cache: a chunk of prompt, or the last of output.

        Gives the next token; None before the prompt's end.
        """
        assert request.cache is not None
        depth = request.cache.get_seq_length()
        tokens = request.prompt[depth : depth + self._chunk] or request.output[-1:]
        phase = "decode" if request.output else "prefill"
        self.activity = f"phase={phase} request={request.number} depth={depth} chunk={len(tokens)}"
        logits = self._forward(tokens, request.cache)
        return request.sampler.choose(logits) if depth + len(tokens) >= len(request.prompt) else None

    def _forward(self, tokens: list[int], cache: Cache) -> torch.Tensor:
        """Logits after the last of `tokens`, which follow what `cache` holds: shape [vocabulary]."""
        batch = torch.tensor([tokens], device=self.model.device)
        logits: torch.Tensor = self.model(batch, cache=cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1]

    def _take(self, request: Request, token: int) -> None:
        """One more token of output, the last where it or a stop string ends the text, or it reaches the limit."""
        if not request.output:
            self._prompt.inc(len(request.prompt))
            self._ttft.observe(time.monotonic() - request.arrived)
        request.output.append(token)
        self._generated.inc()
        ends = token in self._end_tokens and not request.ignore_eos
        full = len(request.output) == request.limit
        text = request.text.feed(token, last=ends or full)
        finish = "stop" if ends or request.text.stopped else "length" if full else None
        request.ended = request.ended or finish
        request.pieces.put_nowait(Piece([token], text, finish))

    @torch.inference_mode()
    def warm_up(self) -> None:
        """One chunk of prefill and one step of decode, as far as the pool goes."""
        chunk = min(self._chunk, self.limit - 1)
        cache = self.pool.reserve(chunk + 1)
        assert cache is not None
        for size in (chunk, 1):
            if size:
                self._forward([0] * size, cache)
        self.pool.release(cache)
