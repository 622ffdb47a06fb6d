"""Engines on tiny models, run in the test's own process."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from queue import Queue
from typing import Any, NoReturn

from transformers import MistralConfig, PreTrainedConfig

from draftmark.embedded import tiny
from draftmark.embedded.engine import Engine, Request
from draftmark.embedded.generation import Piece, Sampler, TextStream
from draftmark.embedded.pool import Pool, probe

WINDOW = 24
TOKENIZER = tiny.tokenizer()


def windowed() -> PreTrainedConfig:
    """Mistral's shape with a window that tests can pass."""
    return MistralConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        sliding_window=WINDOW,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
    )


SHAPES = {**tiny.SHAPES, "windowed": windowed}


class Driven:
    """An engine whose event loop runs on another thread."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.pool = engine.pool
        self._engine, self._loop = engine, loop
        self._outputs: dict[int, Future[list[Piece]]] = {}

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self._outputs[id(request)] = asyncio.run_coroutine_threadsafe(self._collect(request), self._loop)

    async def _collect(self, request: Request) -> list[Piece]:
        async with aclosing(self._engine.generate(request)) as pieces:
            return [piece async for piece in pieces]

    def cancel(self, request: Request) -> None:
        self._outputs[id(request)].cancel()

    def output(self, request: Request) -> list[Piece]:
        """What a request gave, once it has ended."""
        return self._outputs[id(request)].result(60)

    def tokens(self, request: Request) -> list[int]:
        """The tokens of its output."""
        return [token for piece in self.output(request) for token in piece.tokens]

    def value(self, name: str, **labels: str) -> float:
        """A number of /metrics; 0 where it was never touched."""
        return self._engine.metrics.get_sample_value(name, labels) or 0.0


@contextmanager
def serving(
    model: Any, *, tokens: int, chunk: int, max_running: int = 8, end_tokens: tuple[int, ...] = ()
) -> Iterator[Driven]:
    """An engine that takes turns, without a checkpoint's folder."""
    context = int(model.config.max_position_embeddings)
    engine = Engine(
        model, Pool(probe(model), tokens), frozenset(end_tokens), context=context, chunk=chunk, most=max_running
    )
    started: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Task[NoReturn]]] = Queue()

    async def serve() -> None:
        task = asyncio.create_task(engine.serve())
        started.put((asyncio.get_running_loop(), task))
        with suppress(asyncio.CancelledError):
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, task = started.get(timeout=60)
    try:
        yield Driven(engine, loop)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)
        assert not thread.is_alive()


def greedy(prompt: list[int], limit: int, *, ignore_eos: bool = True) -> Request:
    """A request for the likeliest tokens."""
    text = TextStream(TOKENIZER)
    return Request(prompt=prompt, limit=limit, sampler=Sampler(temperature=0), text=text, ignore_eos=ignore_eos)
