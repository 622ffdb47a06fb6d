"""Bytes that one token takes on one rank: as SGLang counts them to size its pool, and as it then allocates them."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.model import Gqa, Layer, Mla, Model, Recurrent
from draftmark.physics.memory import cached_elements, element_bytes, state_elements
from draftmark.planner.flags import has_flag, number_flag, whole_flag
from draftmark.planner.layout import Stage, attention_ranks
from draftmark.planner.sglang.rules import Rules
from draftmark.planner.speculation import drafts

WINDOW_RATIO: Final = 0.8
"""Tokens of the windowed layers' pool to one of the full layers', by default."""
STATE_RATIO: Final = 0.9
"""Bytes of recurrent states to one of keys and values, by default."""
_QUANT_BLOCK: Final = 128
_FP4_BLOCK: Final = 16
FOUR_BITS: Final = ("fp4_e2m1", "fp4_mx_block16", "nvfp4")
"""Caches of 4 bits with a scale of 8 bits for each block of 16 (0.5.23, fp4_kv_cache_quant_method.py)."""
BLOCK_SCALED: Final = (*FOUR_BITS, "mxfp8")
_MXFP8_BLOCK: Final = 32
_DRAFT_SHARES_CELL: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "MTP")


class Cells(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a token on one rank. `counted` sizes the pool, `stored` is what the pool then takes."""

    counted: float
    stored: float
    full: int = 0
    """A token in all full layers, where windowed ones have a pool of their own."""
    windowed: int = 0
    """A token in all windowed layers."""
    draft: int = 0
    """A token in the draft's own pool, part of `counted`."""
    ratio: float | None = None
    """Tokens of the windowed pool to one of the full pool."""


class States(msgspec.Struct, frozen=True, kw_only=True):
    """Recurrent states: bytes one request's slot takes on one rank, and how many slots a running request needs."""

    slot: int
    per_request: int
    ratio: float
    asked: int | None


def cells(model: Model, configuration: Configuration, stage: Stage, rules: Rules, draft: Model | None) -> Cells:
    """Bytes a token on one rank of `stage`.

    Raises:
        BadInput: the cache's dtype is not one that SGLang has.
    """
    layers = stage.layers(model)
    if any(isinstance(layer.mixer, Mla) for layer in layers):
        found = _latent(layers, configuration, rules, model)
    elif rules.splits_windows(model.architecture) and any(_windowed(layer) for layer in layers):
        found = _split(layers, configuration)
    else:
        counted = sum(heads_cell(layer, configuration) for layer in layers) + workspace(layers, configuration)
        found = Cells(counted=counted, stored=counted)
    return _with_draft(found, model, configuration, layers, draft)


def _windowed(layer: Layer) -> bool:
    return isinstance(layer.mixer, Gqa) and layer.mixer.window is not None


def heads_cell(layer: Layer, configuration: Configuration) -> int:
    """One token in one layer of grouped-query attention: heads * (key + value) * element, and scales of blocks."""
    if not isinstance(layer.mixer, Gqa):
        return 0
    dtype = configuration.kv_dtype or "bfloat16"
    context = configuration.parallel.decode_context
    ranks = attention_ranks(configuration.parallel) // context
    # Layers that share an earlier layer's cache have a pool all the same (Gemma 4 E4B: 42 layers, not 24).
    elements = cached_elements(msgspec.structs.replace(layer.mixer, cached=True), ranks)
    if dtype == "mxfp8":
        return elements + elements // _MXFP8_BLOCK
    if dtype in FOUR_BITS:
        heads = elements // (layer.mixer.head_dim + layer.mixer.value_head_dim)
        return elements // 2 + heads * layer.mixer.head_dim * 2 // _FP4_BLOCK
    return int(elements * element_bytes(dtype))


def workspace(layers: tuple[Layer, ...], configuration: Configuration) -> int:
    """One layer's keys and values a token in fp8, which all layers share: FlashInfer's prefill reads no NVFP4.

    0.5.23, fp4_kv_cache_quant_method.py (compute_cell_size): off SM100 it is part of what a token is counted with.
    """
    if configuration.kv_dtype != "nvfp4" or not has_flag(configuration, "--prefill-attention-backend", "flashinfer"):
        return 0
    plain = msgspec.structs.replace(configuration, kv_dtype="fp8_e4m3")
    return max((heads_cell(layer, plain) for layer in layers), default=0)


def _latent(layers: tuple[Layer, ...], configuration: Configuration, rules: Rules, model: Model) -> Cells:
    """Latents are not divided by ranks; selectors add one key with scales a layer."""
    dtype = configuration.kv_dtype or "bfloat16"
    counted = stored = 0
    selecting = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
    for layer in layers:
        mixer = layer.mixer
        if not isinstance(mixer, Mla):
            continue
        width = mixer.latent_rank + mixer.rope_dim
        plain = width // 2 + width // _FP4_BLOCK if dtype in FOUR_BITS else int(width * element_bytes(dtype))
        scaled = plain
        if selecting and dtype == "fp8_e4m3" and not _raw_layout(configuration):
            scaled = mixer.latent_rank + mixer.latent_rank // _QUANT_BLOCK * 4 + 2 * mixer.rope_dim
        # Every decode context rank holds all selector keys (0.5.23, pool_configurator.py).
        selector = _selector(mixer, model, rules) * configuration.parallel.decode_context
        counted += (scaled if rules.selector_cell_exact else plain) + selector
        stored += scaled + selector
    return Cells(counted=counted, stored=stored)


def _raw_layout(configuration: Configuration) -> bool:
    """Kernels that take latents in fp8 without scales."""
    names = ("--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend", "--nsa-decode-backend")
    raw = ("trtllm", "tilelang", "aiter") if configuration.device == "rocm" else ("trtllm",)
    return any(has_flag(configuration, name, value) for name in names for value in raw)


def _selector(mixer: Mla, model: Model, rules: Rules) -> int:
    """A selector's key and scales; older versions keep one on every layer, even those that reuse a selection."""
    own = mixer.indexer
    if own is None and not rules.selector_shared:
        own = next((layer.mixer.indexer for layer in model.layers if isinstance(layer.mixer, Mla)), None)
    return 0 if own is None else own.head_dim + own.head_dim // _QUANT_BLOCK * 4


def _split(layers: tuple[Layer, ...], configuration: Configuration) -> Cells:
    """Windowed layers in a pool of their own, `ratio` tokens to one of the full pool."""
    full = sum(heads_cell(layer, configuration) for layer in layers if not _windowed(layer))
    narrow = sum(heads_cell(layer, configuration) for layer in layers if _windowed(layer))
    ratio = number_flag(configuration, "--swa-full-tokens-ratio") or WINDOW_RATIO
    counted = narrow if not full else full + ratio * narrow
    return Cells(counted=counted, stored=counted, full=full, windowed=narrow, ratio=ratio)


def _with_draft(
    found: Cells, model: Model, configuration: Configuration, layers: tuple[Layer, ...], draft: Model | None
) -> Cells:
    """Add the draft's cache: EAGLE and the like count its layers as if they were the target's."""
    wanted = configuration.speculative
    if wanted is None or not drafts(configuration):
        return found
    count = draft_layers(model, draft)
    kept = sum(isinstance(layer.mixer, Gqa | Mla) for layer in layers)
    if wanted.algorithm.upper() in _DRAFT_SHARES_CELL:
        if not kept:
            return found  # A stage without a cache sizes none for a draft (0.5.23, pool_configurator.py).
        if found.full:
            full_layers = sum(not _windowed(layer) and isinstance(layer.mixer, Gqa) for layer in layers)
            own = found.full * count // max(1, full_layers)
            return msgspec.structs.replace(
                found, counted=found.counted + own, stored=found.stored + own, full=found.full + own, draft=own
            )
        counted = int(found.counted * (1 + count / kept))
        stored = found.stored + found.stored * count // kept
        return msgspec.structs.replace(found, counted=counted, stored=stored, draft=counted - int(found.counted))
    own = sum(heads_cell(layer, configuration) for layer in (draft.layers if draft is not None else ()))
    return msgspec.structs.replace(found, counted=found.counted + own, stored=found.stored + own, draft=own)


def draft_layers(model: Model, draft: Model | None) -> int:
    """Layers of the draft that keep a cache."""
    if draft is None:
        return max(1, model.draft_layers)
    return max(1, draft.draft_layers or len(draft.layers))


def states(model: Model, configuration: Configuration, stage: Stage) -> States | None:
    """Recurrent states on one rank of `stage`; None for models without."""
    ranks = attention_ranks(configuration.parallel)
    total = 0
    for layer in stage.layers(model):
        if isinstance(layer.mixer, Recurrent):
            convolution, state = state_elements(layer.mixer, ranks)
            dtype = _state_dtype(layer.mixer, configuration)
            total += convolution * 2 + int(state * element_bytes(dtype))
    if not total:
        return None
    radix = not has_flag(configuration, "--disable-radix-cache")
    asked = whole_flag(configuration, "--max-mamba-cache-size")
    return States(
        slot=total,
        per_request=3 if radix else 1,
        ratio=number_flag(configuration, "--mamba-full-memory-ratio") or STATE_RATIO,
        asked=asked,
    )


def _state_dtype(mixer: Recurrent, configuration: Configuration) -> str:
    """The flag, the environment, what the checkpoint says, else float32."""
    flags = configuration.flags
    asked = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--mamba-ssm-dtype"), None)
    return asked or dict(configuration.environment).get("SGLANG_MAMBA_SSM_DTYPE") or mixer.state_dtype or "float32"
