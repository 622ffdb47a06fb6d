"""Weights by role and layer: exact from tensor headers, or worked out from the config's sizes."""

import re
from collections import defaultdict
from typing import Final

from draftmark.checkpoint.blocks import Block
from draftmark.checkpoint.headers import Tensor
from draftmark.checkpoint.quantization import Quantization
from draftmark.model import WeightGroup, WeightRole, WeightSplit
from draftmark.units import Bytes

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_VISION: Final = re.compile(r"vision|visual|image_newline|multi_modal|mm_projector|audio|embed_vision|embed_audio")
_DRAFT: Final = re.compile(r"(?:^|\.)mtp\.|(?:^|\.)mtp_layers\.|(?:^|\.)eagle")
_ROLES: Final[tuple[tuple[WeightRole, re.Pattern[str]], ...]] = (
    ("shared_experts", re.compile(r"shared_expert")),
    ("experts", re.compile(r"\.experts\.|\.experts$")),
    ("router", re.compile(r"\.gate\.(?:weight|bias|e_score)|\.router\.|\.gate\.tid2eid")),
    ("embedding", re.compile(r"embed_tokens|\bwte\b|word_embeddings|tok_embeddings|\.embeddings\.|embed_in\b")),
    ("head", re.compile(r"(?:^|\.)lm_head|(?:^|\.)output\.weight|embed_out\b")),
    (
        "attention",
        re.compile(r"attn|attention|mamba|\.mixer\.(?:[qkvo]_proj|in_proj|out_proj|conv|A_log|D|dt_bias|norm)"),
    ),
    ("norm", re.compile(r"norm")),
    ("mlp", re.compile(r"mlp|feed_forward|ffn|block_sparse_moe|\.mixer\.|moe")),
)
_REPLICATED: Final = re.compile(
    r"q_a_proj|kv_a_proj_with_mqa|q_a_layernorm|kv_a_layernorm|fused_qkv_a|indexer|index_k_proj|\.wq_a|\.wkv"
)
_KEY_VALUE: Final = re.compile(r"\.[kv]_proj\.|\.index_q_proj\.|\.key_value\.")


def from_tensors(tensors: tuple[Tensor, ...], layers: int, *, draft: bool = False) -> tuple[WeightGroup, ...]:
    """Weights as stored. Layers beyond the model's own are draft layers; with `draft` everything is."""
    sums: dict[tuple[WeightRole, int | None, str, WeightSplit], list[int]] = defaultdict(lambda: [0, 0])
    for tensor in tensors:
        role, layer = role_of(tensor.name, layers)
        key = ("draft" if draft and role != "vision" else role, layer, tensor.dtype, split_of(tensor.name, role))
        sums[key][0] += tensor.bytes
        sums[key][1] += tensor.elements
    return tuple(
        WeightGroup(role=role, layer=layer, bytes=Bytes(size), parameters=elements, dtype=dtype, split=split)
        for (role, layer, dtype, split), (size, elements) in sums.items()
    )


def role_of(name: str, layers: int) -> tuple[WeightRole, int | None]:
    """What a tensor is for, and in which decoder layer (None outside them)."""
    if _VISION.search(name):
        return "vision", None
    match = _LAYER.search(name)
    layer = int(match.group(1)) if match else None
    if _DRAFT.search(name) or (layer is not None and layer >= layers):
        return "draft", layer
    for role, pattern in _ROLES:
        if pattern.search(name):
            return role, layer
    return "other", layer


def split_of(name: str, role: WeightRole) -> WeightSplit:
    """How tensor parallelism divides a tensor."""
    if role in ("norm", "router", "other") or _REPLICATED.search(name):
        return "none"
    return "heads" if _KEY_VALUE.search(name) else "tensor"


def from_sizes(
    blocks: list[Block],
    *,
    vocabulary: int,
    head: int,
    hidden: int,
    tied: bool,
    vision: int,
    quantization: Quantization,
) -> tuple[WeightGroup, ...]:
    """Weights worked out from sizes: what a config alone can tell. Draft layers are not in it.

    `head` is the number of entries of the output head: EAGLE drafts have fewer than the vocabulary.
    """
    groups = [
        _group("embedding", None, vocabulary * hidden, quantization),
        _group("vision", None, vision, quantization),
    ]
    for layer, block in enumerate(blocks):
        groups += [
            _group("attention", layer, block.attention, quantization),
            _group("attention", layer, block.kv_projection, quantization, split="heads"),
            _group("attention", layer, block.replicated, quantization, split="none"),
            _group("mlp", layer, block.mlp, quantization),
            _group("experts", layer, block.experts, quantization),
            _group("shared_experts", layer, block.shared_experts, quantization),
            _group("router", layer, block.router, quantization, split="none"),
            _group("norm", layer, block.norm, quantization, split="none"),
        ]
    if not tied:
        groups.append(_group("head", None, head * hidden, quantization))
    return tuple(group for group in groups if group.parameters)


def _group(
    role: WeightRole, layer: int | None, parameters: int, quantization: Quantization, *, split: WeightSplit = "tensor"
) -> WeightGroup:
    bits = quantization.bits(role, layer)
    return WeightGroup(
        role=role,
        layer=layer,
        bytes=Bytes(round(parameters * bits / 8)),
        parameters=parameters,
        dtype=quantization.name if bits != quantization.plain_bits else quantization.dtype,
        split=split,
    )
