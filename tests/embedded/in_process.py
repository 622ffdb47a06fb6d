"""Engines on tiny models, run in the test's own process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Queue
from typing import Any, NoReturn

from transformers import MistralConfig, PreTrainedConfig

from draftmark.embedded import tiny
from draftmark.embedded.engine import Engine, Made, Request
from draftmark.embedded.generation import Sampler
from draftmark.embedded.pool import Pool, probe

WINDOW = 24


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

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self._loop.call_soon_threadsafe(self._engine.submit, request)

    def cancel(self, request: Request) -> None:
        self._loop.call_soon_threadsafe(partial(self._engine.cancel, request, reason="cancelled"))

    def output(self, request: Request) -> list[Made]:
        """All tokens of one request."""
        made: list[Made] = []
        while not made or made[-1].finish is None:
            made.append(asyncio.run_coroutine_threadsafe(request.made.get(), self._loop).result(60))
        return made

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
    return Request(prompt=prompt, limit=limit, sampler=Sampler(temperature=0), ignore_eos=ignore_eos)
