"""What SGLang's captured graphs take: the attention backend's buffers, exact for triton, and what is captured.

Triton's buffers were read in 0.5.15.post1 and 0.5.23 (layers/attention/triton_backend.py, init_cuda_graph_state) and
held against the free memory that 9 starts on an H200 log before and after: equal to 0.02 GiB.
"""

from typing import Final

import msgspec

from draftmark.configuration import Configuration, Speculative
from draftmark.hardware import Device
from draftmark.model import Gqa, Mla, Model
from draftmark.planner.layout import attention_ranks
from draftmark.planner.sglang.attention import backend, latent
from draftmark.planner.sglang.defaults import captures_decode, captures_prefill
from draftmark.planner.sglang.rules import Rules
from draftmark.planner.sglang.terms import step
from draftmark.planner.terms import Term
from draftmark.units import GIB, MIB, Bytes

PREFILL_FIXED: Final = 0.3 * GIB
"""What captured prefill takes whatever the chunk: 0.29 and 0.30 GiB where two chunks were measured."""
SET: Final = 0.05 * GIB
"""What one set of captured batches takes whatever their number; a draft captures three sets."""
ROW: Final = 0.6 * MIB
"""What it takes for each token of its largest batch, the buffers apart: 0.07 to 0.26 GiB for 32 to 256 in 9 starts."""
LATENT_START: Final = 0.5 * GIB
"""What latent attention takes between the pool and the first capture: 0.48 to 0.60 GiB in 3 starts."""
SPLITS: Final = 8
"""Parts that triton's decode splits a cache into."""
LATENT_SPLITS: Final = 256
"""The same with latent attention: the power of two above the number of multiprocessors, 132 on an H100 or H200. Cards
with 128 or fewer (A100, RTX 4090) take half as much or less: theirs is overestimated."""
SPLIT_TOKENS: Final = 32
"""Fewest tokens of such a part."""
DECODE: Final = 1.7 * MIB
"""A captured decode batch with other backends than triton, of which no start is at hand: as triton's altogether."""
DRAFTED: Final = 2.8
"""Factor of each drafted token with those."""
LATENT_DECODE: Final = 2.0 * GIB
"""What captured decode takes with latent attention with those."""


def graphs(model: Model, configuration: Configuration, rules: Rules, device: Device) -> Term | None:
    """Captured graphs: decode by batch, prefill by one step's activations."""
    if not captures_decode(configuration) and not captures_prefill(model, configuration, rules):
        return None
    batch = min(configuration.graph_batch or 0, configuration.max_running or 2**30)
    decode = triton(model, configuration, batch) if uses_triton(configuration, model, device) else None
    found = decode or unmeasured(model, configuration, batch)
    if not captures_decode(configuration):
        found = Term(bytes=Bytes(0), deviation=0.0, why="no decode batches")
    if not captures_prefill(model, configuration, rules):
        return found
    draft = configuration.speculative
    wide, how = step(model, configuration)
    models = 2 if draft is not None and draft.draft_model is not None else 1
    return Term(
        bytes=Bytes(round(found.bytes + models * (wide + PREFILL_FIXED))),
        deviation=found.deviation + 0.3 * models * wide,
        why=f"{found.why}; prefill {models} x ({how} + {PREFILL_FIXED / GIB:.1f} GiB)",
    )


def uses_triton(configuration: Configuration, model: Model, device: Device) -> bool:
    """Whether attention runs in triton: by name, or by default."""
    return backend(model, configuration, device) == "triton"


class Buffers(msgspec.Struct, frozen=True, kw_only=True):
    """Triton's buffers a token of the largest batch, in bytes on one rank."""

    partial: int
    """Partial results and their weights: heads x splits x (value width + 1) float32."""
    indices: int
    """Where the cache of a request lies: 8 bytes a token of the longest context."""
    mask: int
    """A byte a token of the longest context."""


def buffers(model: Model, configuration: Configuration) -> Buffers:
    """Buffers of one rank. DeepSeek-V3 on one GPU, 163,840 tokens of context: 128 x 256 x 513 x 4 B = 64.1 MiB."""
    context = configuration.context or model.context
    ranks = attention_ranks(configuration.parallel) // configuration.parallel.decode_context
    heads, width, splits = 1, 1, SPLITS
    for layer in model.layers:
        if isinstance(layer.mixer, Mla):
            longest = 1 << (-(-context // SPLIT_TOKENS) - 1).bit_length()
            heads, width, splits = layer.mixer.heads, layer.mixer.latent_rank, min(LATENT_SPLITS, max(16, longest))
        elif isinstance(layer.mixer, Gqa):
            heads, width = layer.mixer.heads, layer.mixer.value_head_dim
    return Buffers(partial=heads * splits * (width + 1) * 4 // max(1, ranks), indices=8 * context, mask=context)


def triton(model: Model, configuration: Configuration, batch: int) -> Term:
    """Decode graphs with triton, those of a draft included."""
    draft, one = configuration.speculative, buffers(model, configuration)
    rows = batch * ((draft.draft_tokens or 1) if draft is not None else 1)
    each = one.partial + one.indices + one.mask
    held = rows * each
    captured = SET + rows * ROW
    why = f"{rows} rows x {each / MIB:.1f} MiB of triton's buffers"
    if draft is not None and drafts_layers(draft):
        steps, wide = draft.steps or 1, batch * (draft.top_k or 1)
        drafting = steps * wide * one.indices + max(0, steps - 1) * wide * one.partial
        held += rows * each + drafting
        captured *= 3
        why += f", twice, and {drafting / GIB:.2f} GiB for {steps} draft steps"
    if latent(model):
        captured += LATENT_START
    return Term(
        bytes=Bytes(round(held + captured)),
        deviation=0.02 * held + 0.4 * captured,
        why=f"{why}; {captured / GIB:.2f} GiB captured",
    )


def drafts_layers(draft: Speculative) -> bool:
    """Whether the draft runs layers of its own: n-grams do not."""
    return draft.algorithm.upper() not in ("NGRAM", "NONE")


def unmeasured(model: Model, configuration: Configuration, batch: int) -> Term:
    """Decode graphs with other backends."""
    draft = configuration.speculative
    each = LATENT_DECODE if latent(model) else 0.0
    per_batch = DECODE * (DRAFTED * (draft.draft_tokens or 1) if draft is not None else 1.0)
    why = f"{per_batch / MIB:.1f} MiB x {batch} decode batches"
    if each:
        why += f" + {each / GIB:.1f} GiB with latent attention"
    return Term(bytes=Bytes(round(per_batch * batch + each)), deviation=0.3 * per_batch * batch + 0.5 * each, why=why)
