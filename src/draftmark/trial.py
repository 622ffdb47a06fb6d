"""A trial: one start of an engine with one configuration, and how it ended."""

import msgspec

from draftmark.configuration import Configuration
from draftmark.ledger import Ledger, Pool
from draftmark.observation import Observation, Phase
from draftmark.units import Bytes, Seconds


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What must match before two trials may be compared; None where unknown, which matches nothing."""

    draftmark: str
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    model_revision: str | None = None
    device: str | None = None
    device_count: int | None = None
    driver: str | None = None
    flags: tuple[str, ...] = ()


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The engine answered, and its pool is known."""

    after: Seconds


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True, tag="out of memory"):
    """An allocation failed; numbers as the allocator printed them, None where it did not."""

    phase: Phase
    message: str
    tried: Bytes | None = None
    free: Bytes | None = None
    allocated: Bytes | None = None
    reserved_unallocated: Bytes | None = None
    private_pools: Bytes | None = None


class Crashed(msgspec.Struct, frozen=True, kw_only=True, tag="crashed"):
    """The engine ended by itself."""

    phase: Phase
    exit_code: int | None
    signal: str | None
    message: str


class TimedOut(msgspec.Struct, frozen=True, kw_only=True, tag="timed out"):
    """The engine stayed in one phase for longer than it was given."""

    phase: Phase
    after: Seconds
    stack: str | None = None


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag="stopped"):
    """Draftmark or the user ended it on purpose."""

    after: Seconds


Outcome = Ready | OutOfMemory | Crashed | TimedOut | Stopped


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one engine. Ledgers are one a rank, the worst first."""

    configuration: Configuration
    environment: Environment
    outcome: Outcome
    log: str | None
    predicted: tuple[Ledger, ...] = ()
    observed: tuple[Ledger, ...] = ()
    predicted_pool: Pool | None = None
    pool: Pool | None = None
    observations: tuple[Observation, ...] = ()
