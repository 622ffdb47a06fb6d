"""From options to a model with its pool reserved; each step states the memory it left behind in the log."""

import logging
import math
import time
from typing import Any, Final

import msgspec
import torch
from transformers import Cache, PreTrainedConfig, PreTrainedModel

from draftmark.embedded import checkpoint
from draftmark.embedded.memory import Memory, open_memory
from draftmark.embedded.options import FRACTION, Options
from draftmark.embedded.pool import PAGE, LayerShape, Pool, probe_shapes
from draftmark.errors import BadInput

log: Final = logging.getLogger("draftmark.embedded")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be served, and everything that was settled about it."""

    model: PreTrainedModel
    tokenizer: Any
    pool: Pool
    context: int
    chunk: int
    max_running: int
    fraction: float | None
    dtype: str
    device: str
    weights: int
    token_bytes: int
    vocabulary: int
    end_tokens: frozenset[int]

    @property
    def limit(self) -> int:
        """Most tokens, prompt and output together, of one request."""
        return min(self.context, self.pool.tokens)

    def forward(self, tokens: list[int], cache: Cache) -> torch.Tensor:
        """Logits after the last of `tokens`, which follow what `cache` holds: shape [vocabulary]."""
        batch = torch.tensor([tokens], device=self.model.device)
        logits: torch.Tensor = self.model(batch, cache=cache, use_cache=True, logits_to_keep=1).logits
        return logits[0, -1]


class Phases:
    """Writes a line at the end of each phase: its own facts, then memory held and free, and seconds taken."""

    def __init__(self) -> None:
        self.current = "init"
        self.memory: Memory | None = None
        self._since = time.monotonic()

    def end(self, **facts: object) -> None:
        """End the current phase."""
        now = time.monotonic()
        memory = {"held": self.memory.held(), "free": self.memory.free()} if self.memory else {}
        stated = " ".join(f"{name}={value}" for name, value in {**facts, **memory}.items() if value is not None)
        log.info("phase=%s %s elapsed=%.3f", self.current, stated, now - self._since)
        self._since = now


def pool_size(options: Options, *, device: str, free: int, weights: int, token_bytes: int, context: int) -> int:
    """Tokens of the pool, by the formula in docs/embedded.md.

    Raises:
        BadInput: not a single token fits.
    """
    if options.pool_tokens is not None:
        return options.pool_tokens
    budget = math.floor((options.fraction or FRACTION[device]) * free)
    tokens = min((budget - weights) // token_bytes, options.max_running * context)
    if tokens < 1:
        raise BadInput(
            f"no room for a pool: {budget} bytes of {free} free less {weights} of weights leave none",
            place="--mem-fraction",
            remedy="raise it, or --memory",
        )
    return tokens


def load(options: Options, config: PreTrainedConfig, device: str, phases: Phases) -> Loaded:
    """Load weights, reserve the pool, warm up. Takes seconds to minutes; torch's errors pass through.

    Raises:
        BadInput: the checkpoint cannot be served, or leaves no room for a pool.
    """
    memory = phases.memory = open_memory(device, options.memory)
    phases.end(capacity=memory.capacity, free_at_init=memory.free_at_init)
    phases.current = "weights"
    model = checkpoint.load_model(options.model, config, device=device, dtype=options.dtype)
    tokenizer = checkpoint.load_tokenizer(options.model)
    weights = checkpoint.weight_bytes(model)
    phases.end(bytes=weights, dtype=str(model.dtype).removeprefix("torch."))
    phases.current = "pool"
    context = options.context or checkpoint.model_length(config)
    pool, shapes = _reserve(options, model, memory, weights=weights, context=context, device=device)
    token_bytes = sum(shape.token_bytes for shape in shapes)
    phases.end(
        tokens=pool.tokens, bytes=pool.bytes, bytes_per_token=token_bytes, page=PAGE,
        kv_dtype=str(shapes[0].dtype).removeprefix("torch."),
    )  # fmt: skip
    phases.current = "warm-up"
    loaded = Loaded(
        model=model,
        tokenizer=tokenizer,
        pool=pool,
        context=context,
        chunk=options.chunk,
        max_running=options.max_running,
        fraction=None if options.pool_tokens else options.fraction or FRACTION[device],
        dtype=str(model.dtype).removeprefix("torch."),
        device=device,
        weights=weights,
        token_bytes=token_bytes,
        vocabulary=int(config.get_text_config(decoder=True).vocab_size),
        end_tokens=checkpoint.end_tokens(model, tokenizer),
    )
    held, _ = memory.held(), memory.peak()
    _warm_up(loaded)
    peak = memory.peak()
    phases.end(activations=None if peak is None else peak - held)
    return loaded


def _reserve(
    options: Options, model: PreTrainedModel, memory: Memory, *, weights: int, context: int, device: str
) -> tuple[Pool, tuple[LayerShape, ...]]:
    shapes = probe_shapes(model)
    tokens = pool_size(
        options,
        device=device,
        free=memory.free_at_init,
        weights=weights,
        token_bytes=sum(shape.token_bytes for shape in shapes),
        context=context,
    )
    return Pool(shapes, tokens, model.device), shapes


@torch.inference_mode()
def _warm_up(loaded: Loaded) -> None:
    """One chunk of prefill and one step of decode, as far as the pool goes."""
    chunk = min(loaded.chunk, loaded.limit - 1)
    slab = loaded.pool.reserve(chunk + 1)
    assert slab is not None
    cache = loaded.pool.cache(slab)
    if chunk:
        loaded.forward([0] * chunk, cache)
    loaded.forward([0], cache)
    loaded.pool.release(slab)
