"""From options to an interface that can be served; each phase states the memory it left behind in the log."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from transformers import PreTrainedConfig

from draftmark.embedded import checkpoint
from draftmark.embedded.api import Api
from draftmark.embedded.engine import Engine
from draftmark.embedded.memory import DeviceMemory, HostMemory
from draftmark.embedded.options import Options
from draftmark.embedded.pool import PAGE, Pool, probe, token_bytes
from draftmark.errors import BadInput

log: Final = logging.getLogger("draftmark.embedded")

FRACTION: Final = {"cpu": 0.5, "cuda": 0.85}
"""Share of free memory for weights and pool where nothing is asked for."""


class Phases:
    """Which phase of the start is in progress."""

    def __init__(self) -> None:
        self.current = "init"
        self.memory: HostMemory | DeviceMemory | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[dict[str, object]]:
        """Ends with a line in the log: facts that the phase gave, then memory held and free, and seconds taken."""
        self.current, since = name, time.monotonic()
        facts: dict[str, object] = {}
        yield facts
        if self.memory:
            facts |= {"held": self.memory.held(), "free": self.memory.free()}
        stated = " ".join(f"{fact}={value}" for fact, value in facts.items() if value is not None)
        log.info("phase=%s %s elapsed=%.3f", name, stated, time.monotonic() - since)


def pool_size(fraction: float, *, free: int, weights: int, token_bytes: int) -> int:
    """Tokens of the pool, by the formula in docs/embedded.md; sizes in bytes.

    Raises:
        BadInput: not a single token fits.
    """
    budget = math.floor(fraction * free)
    tokens = (budget - weights) // token_bytes
    if tokens < 1:
        raise BadInput(
            f"no room for a pool: {budget} bytes of {free} free less {weights} of weights leave none",
            place="--mem-fraction",
            remedy="raise it, or --memory",
        )
    return tokens


def load(options: Options, config: PreTrainedConfig, info: dict[str, Any], phases: Phases) -> Api:
    """Load weights, reserve the pool, warm up. Takes seconds to minutes; torch's errors pass through.

    Raises:
        BadInput: the checkpoint cannot be served, or leaves no room for a pool.
    """
    device, context = info["device"], options.context or checkpoint.length(config)
    with phases.phase("init") as facts:
        memory = phases.memory = DeviceMemory(options.memory) if device == "cuda" else HostMemory(options.memory)
        facts |= {"capacity": memory.capacity, "free_at_init": memory.free_at_init}
    with phases.phase("weights") as facts:
        model, tokenizer = checkpoint.load(options.model, config, device=device, dtype=options.dtype)
        weights, dtype = checkpoint.weight_bytes(model), str(model.dtype).removeprefix("torch.")
        facts |= {"bytes": weights, "dtype": dtype}
    with phases.phase("pool") as facts:
        layers, fraction = probe(model), options.mem_fraction or FRACTION[device]
        tokens = options.pool_tokens or min(
            pool_size(fraction, free=memory.free_at_init, weights=weights, token_bytes=token_bytes(layers)),
            options.max_running * context,
        )
        pool = Pool(layers, tokens)
        facts |= {"tokens": tokens, "bytes": pool.bytes, "bytes_per_token": token_bytes(layers), "page": PAGE}
        facts |= {"kv_dtype": str(layers[0].keys.dtype).removeprefix("torch.")}
    with phases.phase("warm-up") as facts:
        ends = checkpoint.end_tokens(model, tokenizer)
        engine = Engine(model, pool, ends, context=context, chunk=options.chunk, most=options.max_running)
        held, _ = memory.held(), memory.peak()
        engine.warm_up()
        peak = memory.peak()
        facts |= {"activations": None if peak is None else peak - held}
    info = {**info, "context_length": context, "chunk": options.chunk, "max_running": options.max_running}
    info |= {"dtype": dtype, "mem_fraction": None if options.pool_tokens else fraction, "weight_bytes": weights}
    info |= {"pool_tokens": tokens, "pool_bytes": pool.bytes, "bytes_per_token": token_bytes(layers)}
    info |= {"prefix_cache": False}
    return Api(engine, tokenizer, info)
