"""What vLLM's versions do differently. Read in the published wheels; the version is the first read with the rule."""

import math
from typing import Final, Literal

import msgspec

from draftmark.engines.versions import Version, ahead, parse_version
from draftmark.errors import BadInput
from draftmark.units import GIB

NEWEST: Final = "0.33.0"

Meaning = Literal["blocks", "groups", "concurrency"]
"""What the printed number of tokens is: blocks x block size; blocks shared among groups; concurrency x length."""


DRIFT: Final = 0.27 * GIB
"""By how much the pool moved from one version to the next: root mean square of 248 steps of 8 models on 4 GPUs."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One version's arithmetic."""

    version: Version

    def since(self, *numbers: int) -> bool:
        """Whether the version is that one or newer."""
        return self.version >= numbers

    @property
    def drift(self) -> float:
        """Deviation of the budget, in bytes, that comes from a version which was not read."""
        return DRIFT * math.sqrt(ahead(self.version, parse_version(NEWEST)))

    @property
    def utilization(self) -> float:
        """Default gpu_memory_utilization."""
        return 0.92 if self.since(0, 20) else 0.9

    @property
    def meaning(self) -> Meaning:
        """What the printed number of tokens is."""
        if self.since(0, 20):
            return "concurrency"
        return "groups" if self.since(0, 10, 2) else "blocks"

    @property
    def graphs_charged(self) -> bool:
        """An estimate of the graphs is taken off the budget."""
        return self.since(0, 20)

    @property
    def context_charged(self) -> bool:
        """The CUDA context is taken off the budget, too."""
        return not self.since(0, 10)


def rules_for(text: str | None) -> Rules:
    """Rules of a version; the newest that was read where none is given.

    Raises:
        BadInput: the version is older than the engine that is described here.
    """
    version = parse_version(text or NEWEST)
    if version < (0, 8):
        raise BadInput(f"vLLM {text} is older than 0.8", place="--engine-version", remedy="plan for 0.8 or newer")
    return Rules(version=version)
