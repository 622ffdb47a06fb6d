"""Engines on tiny models, run in the test's own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from transformers import MistralConfig, PreTrainedConfig

from draftmark.embedded import checkpoint, tiny
from draftmark.embedded.engine import Engine, Request, Token
from draftmark.embedded.generation import Sampling
from draftmark.embedded.loading import Loaded
from draftmark.embedded.metrics import Metrics
from draftmark.embedded.pool import Pool, probe_shapes

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


def load(model: Any, *, tokens: int, chunk: int, max_running: int = 8, end_tokens: tuple[int, ...] = ()) -> Loaded:
    """What the engine serves, without a checkpoint's folder."""
    shapes = probe_shapes(model)
    return Loaded(
        model=model,
        tokenizer=None,
        pool=Pool(shapes, tokens, model.device),
        context=int(model.config.max_position_embeddings),
        chunk=chunk,
        max_running=max_running,
        fraction=None,
        dtype="float32",
        device="cpu",
        weights=checkpoint.weight_bytes(model),
        token_bytes=sum(shape.token_bytes for shape in shapes),
        vocabulary=int(model.config.vocab_size),
        end_tokens=frozenset(end_tokens),
    )


@contextmanager
def serving(loaded: Loaded) -> Iterator[Engine]:
    """An engine that takes turns on a thread of its own."""
    engine = Engine(loaded, Metrics())
    thread = threading.Thread(target=engine.serve)
    thread.start()
    try:
        yield engine
    finally:
        engine.stop()
        thread.join(60)
        assert not thread.is_alive()


def greedy(prompt: list[int], limit: int, *, ignore_eos: bool = True) -> tuple[Request, "Queue[Token]"]:
    """A greedy request, and the queue that its tokens come through."""
    tokens: Queue[Token] = Queue()
    return Request(tuple(prompt), limit, Sampling(temperature=0), ignore_eos=ignore_eos, emit=tokens.put), tokens


def output(tokens: "Queue[Token]") -> list[Token]:
    """All tokens of one request."""
    made = [tokens.get(timeout=60)]
    while made[-1].finish is None:
        made.append(tokens.get(timeout=60))
    return made
