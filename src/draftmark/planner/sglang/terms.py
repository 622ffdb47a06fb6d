"""SGLang's uncertain terms: what its budget arithmetic takes from the machine instead of from the configuration."""

from typing import Final

from draftmark.configuration import Configuration
from draftmark.hardware import Device
from draftmark.model import Gqa, Mla, Model
from draftmark.planner.flags import has_flag
from draftmark.planner.layout import attention_ranks
from draftmark.planner.sglang.defaults import captures_prefill
from draftmark.planner.sglang.rules import Rules
from draftmark.planner.terms import Term
from draftmark.units import GIB, Bytes

CONTEXT: Final = 0.71 * GIB
"""Capacity less free memory once one process has its context: 79.19 - 78.48 on an H100, 139.80 - 139.09 on an H200."""
COMMUNICATION: Final = 0.27 * GIB
"""What several ranks add: 94.97 - 93.99 = 0.98 GiB at tensor parallelism 8 without custom all-reduce."""
CUSTOM_ALL_REDUCE: Final = 0.75 * GIB
"""vLLM's starts with its custom all-reduce show 1.5 to 2.1 GiB before the weights at tensor parallelism 2 and 4."""

BUFFERS: Final = 0.05 * GIB
"""Rotary tables and other buffers beside the weights (0.02 to 0.10 GiB in 8 starts)."""
STEP: Final = 1.6
"""Share of `step_elements` that was held at the peak: 1.1 to 2.1 in 6 starts on an H200."""


def context() -> Term:
    """The CUDA context and libraries of one process."""
    return Term(
        bytes=Bytes(round(CONTEXT)),
        deviation=0.08 * GIB,
        why="what a process holds before the weights; 0.71 GiB on an H100 and on an H200",
    )


def communication(configuration: Configuration, device: Device) -> Term | None:
    """NCCL and all-reduce buffers of several ranks."""
    if configuration.parallel.tensor * configuration.parallel.pipeline == 1:
        return None
    size = COMMUNICATION
    if device.nvlink and not has_flag(configuration, "--disable-custom-all-reduce"):
        size += CUSTOM_ALL_REDUCE
    return Term(bytes=Bytes(round(size)), deviation=0.4 * GIB, why="NCCL and all-reduce buffers of several ranks")


def weights(size: Bytes, *, exact: bool) -> Term:
    """Weights on one rank and the buffers beside them; sizes alone are less sure than headers."""
    share = 0.002 if exact else 0.006
    source = "tensor headers" if exact else "the config's sizes"
    held = Bytes(round(size + BUFFERS))
    return Term(bytes=held, deviation=share * size + 0.03 * GIB, why=f"one rank's share, from {source}, and buffers")


def unattributed() -> Term:
    """What else appears between the weights and the sizing of the pool."""
    return Term(
        bytes=Bytes(round(0.02 * GIB)),
        deviation=0.08 * GIB,
        why="0.00 to 0.16 GiB between the weights and the pool's sizing in 14 starts",
    )


def step_elements(model: Model, ranks: int) -> float:
    """Elements that one token of a prefill step passes through at the widest point of a layer.

    Hidden states four times, the feed-forward part's three widths, queries, keys and values; routed tokens are copied
    for each expert that they go to.
    """
    wide = 3 * model.intermediate_size / ranks
    if model.experts is not None:
        copies = model.experts.active * (3 * model.experts.intermediate_size / ranks + model.hidden_size)
        wide = max(wide, copies)
    heads = 0.0
    for layer in model.layers:
        mixer = layer.mixer
        if isinstance(mixer, Gqa):
            heads = max(heads, (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim / ranks)
        elif isinstance(mixer, Mla):
            heads = max(heads, mixer.heads * (2 * mixer.nope_dim + 2 * mixer.rope_dim + mixer.value_dim) / ranks)
    return 4 * model.hidden_size + wide + heads


def step(model: Model, configuration: Configuration) -> tuple[float, str]:
    """Bytes of one prefill step, and how they come about."""
    chunk = configuration.chunk if configuration.chunk is not None and configuration.chunk > 0 else 16_384
    if configuration.parallel.data_attention:
        chunk //= max(1, configuration.parallel.data)
    elements = step_elements(model, configuration.parallel.tensor)
    return STEP * 2 * chunk * elements, f"{STEP} x 2 B x {chunk:,} tokens x {elements:,.0f} elements"


def activations(model: Model, configuration: Configuration, rules: Rules) -> Term:
    """One prefill step's peak beyond what captured prefill holds already."""
    size, how = step(model, configuration)
    if captures_prefill(model, configuration, rules):
        kept = 0.1 * size
        return Term(bytes=Bytes(round(kept)), deviation=kept, why=f"a tenth of {how}; the rest lies in the graphs")
    return Term(bytes=Bytes(round(size)), deviation=0.35 * size, why=how)


def logits(model: Model, configuration: Configuration) -> Term:
    """Logits of one decode step, in float32, and their copy while sampling."""
    draft = configuration.speculative
    batch = min(configuration.graph_batch or 1, configuration.max_running or 2**30)
    rows = batch * ((draft.draft_tokens or 1) if draft else 1)
    size = rows * model.vocabulary * 4 // max(1, attention_ranks(configuration.parallel)) + rows * model.vocabulary * 4
    return Term(
        bytes=Bytes(size), deviation=0.3 * size, why=f"{rows} rows x {model.vocabulary:,} x 4 B, split and gathered"
    )


def stranded(expandable: bool) -> Term:
    """Memory that torch's allocator keeps in pieces too small to use; expandable segments have hardly any."""
    if expandable:
        return Term(bytes=Bytes(0), deviation=0.05 * GIB, why="expandable segments join free pieces")
    return Term(
        bytes=Bytes(round(0.3 * GIB)),
        deviation=0.5 * GIB,
        why="0.3 to 1.8 GiB 'reserved by PyTorch but unallocated' in public out-of-memory messages",
    )
