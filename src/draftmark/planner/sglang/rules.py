"""What SGLang's versions do differently. Read in the published wheels; the version is the first read with the rule."""

import math
from typing import Final

import msgspec

from draftmark.engines.versions import Version, ahead, parse_version
from draftmark.errors import BadInput
from draftmark.units import GIB

NEWEST: Final = "0.5.23"
_OLDEST: Final = (0, 4, 6)


SPLIT_WINDOWS: Final[dict[str, Version]] = {
    "Llama4ForConditionalGeneration": (0, 4, 6),
    "MiMoV2FlashForCausalLM": (0, 5, 7),
    "GptOssForCausalLM": (0, 5, 8),
    "Step3p5ForCausalLM": (0, 5, 9),
    "Gemma4ForCausalLM": (0, 5, 11),
    "Gemma4ForConditionalGeneration": (0, 5, 11),
    "Step3p7ForConditionalGeneration": (0, 5, 13),
}
"""Architectures whose windowed layers have a pool of their own, since when; the others' windows are cached in full.

configs/model_config.py: is_hybrid_model, later is_hybrid_swa_model.
"""
DRIFT: Final = 0.32 * GIB
"""By how much the pool moved from one version to the next: root mean square of 168 steps of 8 models on 4 GPUs."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One version's arithmetic."""

    version: Version

    def since(self, *numbers: int) -> bool:
        """Whether the version is that one or newer; a build from source is."""
        return self.version >= numbers or not any(self.version)

    @property
    def drift(self) -> float:
        """Deviation of the budget, in bytes, that comes from a version which was not read."""
        return DRIFT * math.sqrt(ahead(self.version, parse_version(NEWEST)))

    def splits_windows(self, architecture: str) -> bool:
        """Whether the windowed layers of an architecture have a pool of their own."""
        since = SPLIT_WINDOWS.get(architecture)
        return since is not None and self.since(*since)

    @property
    def formula_fraction(self) -> bool:
        """The default fraction follows from reserves (before 0.5.3 from tables that are not kept here)."""
        return self.since(0, 5, 3)

    @property
    def small_chunk(self) -> int:
        """Chunk on GPUs of 20 to 35 GiB."""
        return 4096 if self.since(0, 5, 16) else 2048

    @property
    def small_graphs(self) -> tuple[int, int]:
        """Largest decode graph there, below and from tensor parallelism 4."""
        return (48, 160) if self.since(0, 5, 16) else (24, 80)

    @property
    def prefill_graphs(self) -> bool:
        """Prefill is captured by default."""
        return self.since(0, 5, 9)

    @property
    def latent_prefill(self) -> bool:
        """Prefill with latent attention is captured (0.5.15 refuses it)."""
        return self.since(0, 5, 20) or not self.since(0, 5, 15)

    @property
    def latent_reserve(self) -> bool:
        """1.5 GiB are reserved for prefill graphs with latent attention."""
        return self.since(0, 5, 12)

    @property
    def draft_counted(self) -> bool:
        """Draft weights are loaded before the pool is sized; before, a flat reserve stood for them."""
        return self.since(0, 5, 15)

    @property
    def draft_reserve(self) -> tuple[int, int]:
        """That flat reserve in MiB, for EAGLE and for a stand-alone draft model."""
        if self.draft_counted:
            return (0, 0)
        return (4096, 6144) if self.since(0, 5, 12) else (2048, 6144)

    @property
    def chains(self) -> bool:
        """Models that are not listed draft a chain of 3 by default, and no longer a tree of 8."""
        return self.since(0, 5, 8)

    @property
    def selector_cell_exact(self) -> bool:
        """Bytes a token of sparse latent attention in fp8 count its scales; in 0.5.15 they do not, and the pool it
        then allocates is larger than the budget that it was given."""
        return self.since(0, 5, 16)

    @property
    def selector_shared(self) -> bool:
        """Layers that reuse an earlier layer's selection keep no selector keys."""
        return self.since(0, 5, 20)

    @property
    def state_slot_reserved(self) -> bool:
        """One state slot more than is handed out is allocated, and counted."""
        return self.since(0, 5, 16)

    @property
    def multimodal_reserve(self) -> bool:
        """100 MiB of the budget are kept for multimodal caches."""
        return self.since(0, 5, 20)

    @property
    def graph_limit_follows_running(self) -> bool:
        """The largest decode graph is at most the running requests."""
        return self.since(0, 5, 16)


def rules_for(text: str | None) -> Rules:
    """Rules of a version; the newest that was read where none is given.

    Raises:
        BadInput: the version is older than any that was read.
    """
    version = parse_version(text or NEWEST)
    if any(version) and len(version) < len(_OLDEST):
        raise BadInput(
            f"SGLang {text} is a series of versions", place="--engine-version", remedy=f"name one, like {NEWEST}"
        )
    if any(version) and version < _OLDEST:
        raise BadInput(f"SGLang {text} is older than 0.4.6", place="--engine-version", remedy="plan for 0.4.6 or newer")
    return Rules(version=version)
