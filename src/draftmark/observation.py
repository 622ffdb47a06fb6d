"""Numbers that an engine stated, each with its unit and source."""

from typing import Final, Literal

import msgspec

from draftmark.units import Tokens

Unit = Literal["bytes", "bytes/second", "tokens", "seconds", "requests", "blocks", "ratio", "text"]
Phase = Literal[
    "init", "weights", "profile", "pool", "graphs", "warm-up", "ready", "prefill", "decode", "stopping", "unknown"
]
"""Where an engine is between its start and its end, in that order."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a number was read: a log line, or an endpoint."""

    place: str
    """File or URL."""
    line: int | None = None
    text: str = ""


QUANTITIES: Final[dict[str, str]] = {
    "start": "an engine begins here; several starts may share one log",
    "version": "of the engine",
    "model": "as it was named to the engine",
    "model_class": "the engine's class for it",
    "dtype": "of the weights",
    "kv_dtype": "of the cache",
    "device": "cpu, or a kind of GPU",
    "capacity": "bytes of the device that a program can have",
    "free": "bytes free at the end of that phase (at its beginning for weights, and for each graph)",
    "context": "bytes gone before the model: contexts, other processes",
    "communication": "bytes of the communicator, or of all memory outside PyTorch",
    "baseline": "bytes gone when SGLang takes its baseline",
    "weights": "bytes of the model's weights on one rank",
    "draft_weights": "the same of a draft model",
    "pool_tokens": "tokens of the pool as this engine and version counts them",
    "pool_bytes": "bytes of the pool",
    "pool_bound": "tokens that address space was reserved for; not the pool",
    "draft_pool_tokens": "tokens of the draft model's pool",
    "draft_pool_bytes": "bytes of it",
    "windowed_pool": "bytes of full and sliding-window pools together",
    "full_tokens": "tokens of the pool of full-attention layers",
    "window_tokens": "tokens of the pool of sliding-window layers",
    "state_pool_bytes": "bytes of recurrent states",
    "state_slots": "recurrent states that there is room for",
    "page": "tokens that are reserved together",
    "blocks": "pages of the pool",
    "bytes_per_token": "of the pool, on one rank",
    "graphs": "bytes that captured graphs hold",
    "captured": "largest step that graphs are captured for: requests, of prefill steps tokens (SGLang)",
    "graphs_estimated": "what vLLM expected them to hold",
    "activations": "bytes at the peak of a trial run",
    "peak": "the same with the estimate for graphs in it (vLLM since 0.30)",
    "consumed": "bytes of weights and all outside PyTorch together (vLLM since 0.30)",
    "budget": "bytes that the engine may use by its fraction",
    "context_length": "tokens of the longest request",
    "chunk": "tokens of one prefill step",
    "max_running": "most requests at once",
    "memory_fraction": "as given or resolved",
    "elapsed": "seconds of what just ended",
    "used_peak": "most bytes that a GPU held, by NVML",
    "out_of_memory": "the message of an allocation that failed",
    "tried": "bytes that it asked for",
    "free_at_failure": "bytes free then",
    "allocated": "bytes that PyTorch had given out",
    "reserved_unallocated": "bytes that PyTorch held in pieces",
    "private_pools": "bytes of graphs in PyTorch's private pools",
    "not_understood": "a line that speaks of memory and that no rule knows",
}
"""The words that adapters share. An engine's own further words are allowed; nothing decides on them."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One number (or word) that an engine stated, in base units; `quantity` is a word of `QUANTITIES`."""

    quantity: str
    value: float | int | str
    unit: Unit
    source: Source
    rank: int | None = None
    phase: Phase = "unknown"


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a running server says of itself; None where it does not say."""

    url: str
    engine: str | None
    version: str | None
    models: tuple[str, ...]
    context: Tokens | None = None
    longest_prompt: Tokens | None = None
    """Where prompts have a limit of their own, below that of prompt and output together."""
    longest_request: Tokens | None = None
    """Prompt and output together, where the engine cuts the output off before its context length is full."""
    ranks: int = 1
    """Data-parallel ranks: each has a pool and a running limit of its own, and requests are spread over them."""
    pool_tokens: Tokens | None = None
    """Of one rank, the smallest."""
    pool_reserved: Tokens = Tokens(0)
    """Tokens of the pool that no request can have."""
    max_running: int | None = None
    """Of one rank."""
    page: Tokens | None = None
    chunk: Tokens | None = None
    draft_tokens: int | None = None
    device: str | None = None
    started: float | None = None
    """Start of the server process (Unix time), to notice a restart."""
    token_ids: bool | None = None
    """Prompts may be given as token ids."""
    ignore_eos: bool | None = None
    cache_flush: str | None = None
    """Path of the endpoint that empties the prefix cache."""
    observations: tuple[Observation, ...] = ()
