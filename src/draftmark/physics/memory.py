"""Bytes that a token's cache takes, and how ranks share weights and heads. Stored bytes, not bytes read a step."""

from typing import Final

from draftmark.errors import BadInput
from draftmark.model import Gqa, Mixer, Mla, Model, Recurrent, WeightGroup
from draftmark.units import Bytes

ELEMENT_BYTES: Final = {
    "float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "int8": 1.0,
    "fp4_e2m1": 0.5,
}  # fmt: skip


def element_bytes(dtype: str) -> float:
    """Bytes of one element. bfloat16: 2.

    Raises:
        BadInput: the dtype is not known.
    """
    size = ELEMENT_BYTES.get(dtype)
    if size is None:
        raise BadInput(f"unknown dtype {dtype!r}", place="dtype", remedy=f"known: {', '.join(ELEMENT_BYTES)}")
    return size


def heads_per_rank(kv_heads: int, ranks: int) -> int:
    """KV heads that one of `ranks` tensor-parallel ranks caches: max(1, kv_heads // ranks). 8 heads, 16 ranks: 1."""
    return max(1, kv_heads // ranks)


def cached_elements(mixer: Mixer, ranks: int = 1) -> int:
    """Elements that one token adds to one layer's cache on each of `ranks` tensor-parallel ranks.

    Gqa: heads_per_rank * (head_dim + value_head_dim); Llama-3-8B on one GPU: 8 * (128 + 128) = 2,048.
    Mla: latent_rank + rope_dim on every rank, for the latent is not divided; DeepSeek-V3: 512 + 64 = 576.
    Recurrent layers add nothing a token. Selector keys, scales and paddings are the engines' own affair.
    """
    if isinstance(mixer, Gqa):
        if not mixer.cached:
            return 0
        return heads_per_rank(mixer.kv_heads, ranks) * (mixer.head_dim + mixer.value_head_dim)
    if isinstance(mixer, Mla):
        return mixer.latent_rank + mixer.rope_dim
    return 0


def token_bytes(model: Model, element: float, ranks: int = 1) -> Bytes:
    """Bytes that one token adds to all layers' caches on each rank, windows not counted.

    DeepSeek-V3 in bf16: 61 * 576 * 2 = 70,272. Llama-3-70B in int8: 80 * 8 * 256 * 1 = 163,840.
    """
    return Bytes(round(sum(cached_elements(layer.mixer, ranks) for layer in model.layers) * element))


def weight_bytes(groups: tuple[WeightGroup, ...], ranks: int, kv_heads: int) -> Bytes:
    """Weights on each of `ranks` tensor-parallel ranks.

    Each group is divided by all ranks, by as many as there are KV heads, or not at all (`WeightGroup.split`).
    Experts under expert parallelism divide the same way, so they are not told apart. Ignores padding.
    """
    shares = {"tensor": ranks, "heads": min(ranks, max(1, kv_heads)), "none": 1}
    return Bytes(round(sum(group.bytes / shares[group.split] for group in groups)))


def kv_heads_of(model: Model) -> int:
    """KV heads of the model's first layer that has heads; latent attention counts all of its heads."""
    for layer in model.layers:
        if isinstance(layer.mixer, Gqa):
            return layer.mixer.kv_heads
        if isinstance(layer.mixer, Mla):
            return layer.mixer.heads
    return 1


def state_elements(mixer: Mixer, ranks: int = 1) -> tuple[int, int]:
    """Convolution and state elements that one request holds in one recurrent layer on each rank; none elsewhere."""
    if not isinstance(mixer, Recurrent):
        return (0, 0)
    return (-(-mixer.convolution_elements // ranks), -(-mixer.state_elements // ranks))
