"""SGLang's uncertain terms: what its budget arithmetic takes from the machine instead of from the configuration."""

from typing import Final

from draftmark.configuration import Configuration
from draftmark.model import Model
from draftmark.planner.layout import attention_ranks
from draftmark.planner.sglang.defaults import prefill_sizes
from draftmark.planner.sglang.flags import has_flag
from draftmark.planner.terms import Term
from draftmark.units import GIB, MIB, Bytes

CONTEXT: Final = 0.71 * GIB
"""Capacity less free memory once one process has its context: 79.19 - 78.48 on an H100, 139.80 - 139.09 on an H200."""
COMMUNICATION: Final = 0.27 * GIB
"""What several ranks add: 94.97 - 93.99 = 0.98 GiB at tensor parallelism 8 without custom all-reduce."""
CUSTOM_ALL_REDUCE: Final = 0.75 * GIB
"""vLLM's starts with its custom all-reduce show 1.5 to 2.1 GiB before the weights at tensor parallelism 2 and 4."""


def context() -> Term:
    """The CUDA context and libraries of one process."""
    return Term(
        bytes=Bytes(round(CONTEXT)),
        deviation=0.08 * GIB,
        why="what a process holds before the weights; 0.71 GiB on an H100 and on an H200",
    )


def communication(configuration: Configuration) -> Term | None:
    """NCCL and all-reduce buffers of several ranks."""
    if configuration.parallel.tensor * configuration.parallel.pipeline == 1:
        return None
    size = COMMUNICATION
    if not has_flag(configuration, "--disable-custom-all-reduce"):
        size += CUSTOM_ALL_REDUCE
    return Term(bytes=Bytes(round(size)), deviation=0.4 * GIB, why="NCCL and all-reduce buffers of several ranks")


def weights(size: Bytes, *, exact: bool) -> Term:
    """Weights on one rank; sizes alone are less sure than headers."""
    share = 0.004 if exact else 0.015
    source = "tensor headers" if exact else "the config's sizes"
    return Term(bytes=size, deviation=share * size, why=f"one rank's share, from {source}")


def unattributed() -> Term:
    """What else appears between the start and the sizing of the pool."""
    return Term(
        bytes=Bytes(0),
        deviation=0.25 * GIB,
        why="kernels' workspaces and the allocator's rest before the pool is sized",
    )


def graphs(configuration: Configuration) -> Term | None:
    """Captured graphs, after the engine's own rule of thumb: 2 MiB a decode batch, 8 MiB a prefill shape."""
    if not configuration.graphs:
        return None
    decode = 2 * MIB * (configuration.graph_batch or 0)
    prefill = 8 * MIB * prefill_sizes(configuration.chunk or 0)
    size = decode + prefill
    return Term(
        bytes=Bytes(size),
        deviation=0.6 * size,
        why=f"the engine's rule of thumb: 2 MiB x {configuration.graph_batch} decode batches, 8 MiB a prefill shape",
    )


def activations(model: Model, configuration: Configuration) -> Term:
    """One prefill step's peak: hidden states, the widest feed-forward part and queries, keys and values."""
    chunk = configuration.chunk if (configuration.chunk or 0) > 0 else 16_384
    ranks = configuration.parallel.tensor
    wide = model.intermediate_size
    if model.experts is not None:
        wide = max(wide, (model.experts.active + model.experts.shared) * model.experts.intermediate_size)
    size = round((chunk or 0) * 2 * (4 * model.hidden_size + 3 * wide / ranks))
    return Term(
        bytes=Bytes(size),
        deviation=0.5 * size,
        why=f"{chunk:,} tokens x 2 B x (4 x {model.hidden_size} + 3 x {wide} / {ranks})",
    )


def logits(model: Model, configuration: Configuration) -> Term:
    """Logits of one decode step, in float32, and their copy while sampling."""
    draft = configuration.speculative
    rows = (configuration.graph_batch or 1) * ((draft.draft_tokens or 1) if draft else 1)
    size = rows * model.vocabulary * 4 // max(1, attention_ranks(configuration.parallel)) + rows * model.vocabulary * 4
    return Term(
        bytes=Bytes(size), deviation=0.3 * size, why=f"{rows} rows x {model.vocabulary} x 4 B, split and gathered"
    )
