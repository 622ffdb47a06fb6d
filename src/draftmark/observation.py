"""Numbers that an engine stated, each with its unit and source."""

from typing import Literal

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


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One number (or word) that an engine stated, in base units."""

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
    pool_tokens: Tokens | None = None
    max_running: int | None = None
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
