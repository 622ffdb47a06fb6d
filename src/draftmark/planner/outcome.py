"""What a plan says: a ledger for each GPU, the pool with its interval, what fits into it, and what may go wrong."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Device
from draftmark.ledger import Ledger, Pool
from draftmark.planner.target import Reach
from draftmark.units import Bytes, Tokens

RiskPhase = Literal["load", "pool", "graphs", "prefill", "decode"]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the user left open, what it becomes, and by which rule."""

    field: str
    value: str
    why: str


class Risk(msgspec.Struct, frozen=True, kw_only=True):
    """The probability of running out of memory in one phase."""

    phase: RiskPhase
    probability: float
    why: str


CERTAIN: Final = 0.995
"""Probability from which something counts as certain: what a normal law leaves beyond is not to be counted on."""


STARTING: Final[tuple[RiskPhase, ...]] = ("load", "pool", "graphs")
"""Phases before the engine is ready; one that runs out of memory in the others dies under requests."""


def cannot_start(risks: Iterable[Risk]) -> bool:
    """Whether loading the weights, reserving the pool or capturing graphs is certain to run out of memory."""
    return any(risk.probability >= CERTAIN and risk.phase in STARTING for risk in risks)


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of one length fit at once: into one pool, and into all of them."""

    length: Tokens
    requests: int
    in_all: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration, as it is predicted to turn out. `configuration` has every value filled in that is known."""

    model: str
    architecture: str
    exact_weights: bool
    configuration: Configuration
    device: Device
    gpus: int
    ledgers: tuple[Ledger, ...]
    """One a rank that differs from the others, the worst first."""
    pool: Pool
    """One rank's, its tokens as the engine prints them."""
    held: Tokens
    """Tokens of context that one pool holds: the printed ones, times the decode context ranks where each prints its
    own share."""
    pools: int
    """Pools that requests are spread over, one for each data-parallel rank; a request lives in one of them."""
    bytes_per_token: Bytes
    """What one more token of context takes on each GPU."""
    bytes_per_request: Bytes
    """What one request takes on each GPU whatever its length: recurrent states, windows."""
    longest_request: Tokens
    """Prompt and output of the longest single request, which one pool has to hold."""
    room: tuple[Room, ...]
    risks: tuple[Risk, ...]
    reasons: tuple[Reason, ...]
    conflicts: tuple[str, ...] = ()
    """What the engine refuses to combine and the configuration does, or what else it refuses: it does not start."""
    notes: tuple[str, ...] = ()
    reach: Reach | None = None
    """Whether a target fits, where one was given."""
    not_understood: tuple[str, ...] = ()
    """Flags of a pasted launch command that may change memory and are not in the prediction."""

    @property
    def worst_risk(self) -> float:
        """The largest probability of running out of memory in any phase."""
        return max((risk.probability for risk in self.risks), default=0.0)

    @property
    def fits(self) -> bool:
        """Whether the engine starts at all: a pool is left, and nothing certain stands against it."""
        return self.pool.tokens > 0 and not self.conflicts and not cannot_start(self.risks)
