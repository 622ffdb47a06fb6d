"""What a language model is, as far as memory and time depend on it: layers, what each caches, and its weights."""

from typing import Literal

import msgspec

from draftmark.units import Bytes, Tokens


class Indexer(msgspec.Struct, frozen=True, kw_only=True):
    """The selector of sparse attention: one small key a token and layer tells which tokens are attended to.

    Beside latents it selects tokens (DeepSeek V3.2, GLM-5), beside heads whole blocks of them (MiniMax M3).
    """

    heads: int
    head_dim: int
    top_k: Tokens


class Gqa(msgspec.Struct, frozen=True, kw_only=True, tag="gqa"):
    """Grouped-query attention; with `kv_heads == heads` it is multi-head, with 1 multi-query."""

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: Tokens | None = None
    """Sliding window or local chunk, in tokens; None attends to everything."""
    cached: bool = True
    """False where the layer reads the cache of an earlier one and keeps none itself (Gemma 3n)."""
    indexer: Indexer | None = None
    """None where every cached token is attended to."""


class Mla(msgspec.Struct, frozen=True, kw_only=True, tag="mla"):
    """Multi-head latent attention (DeepSeek): a latent and one shared rotary key are cached, not heads."""

    heads: int
    latent_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None
    indexer: Indexer | None = None
    """None without sparse attention, and on layers that take an earlier layer's selection (GLM-5.2)."""


class Recurrent(msgspec.Struct, frozen=True, kw_only=True, tag="recurrent"):
    """Mamba or linear attention: a state of fixed size a request, nothing a token. Sizes in elements, unsplit."""

    kind: Literal["mamba", "mamba2", "gated_delta", "kda", "lightning"]
    convolution_elements: int
    state_elements: int
    state_dtype: str | None = None
    convolution_taps: int | None = None
    """Tokens that the short convolution keeps: its kernel less one."""


class NoMixer(msgspec.Struct, frozen=True, kw_only=True, tag="none"):
    """A layer that mixes no tokens (an MLP or expert layer of its own, as in Nemotron-H): caches nothing."""


Mixer = Gqa | Mla | Recurrent | NoMixer


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder layer: how it mixes tokens, and whether its feed-forward part has experts."""

    mixer: Mixer
    experts: bool = False


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """Mixture of experts: `active` of `count` work on each token, and `shared` on every one."""

    count: int
    active: int
    shared: int
    intermediate_size: int


WeightRole = Literal[
    "embedding", "head", "attention", "mlp", "experts", "shared_experts", "router", "norm", "vision", "draft", "other"
]


WeightSplit = Literal["tensor", "heads", "none"]
"""How tensor parallelism divides weights: by all ranks, by as many as there are KV heads, or not at all."""


class WeightGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of one role in one layer (`layer` is None outside the decoder layers), as stored."""

    role: WeightRole
    layer: int | None
    bytes: Bytes
    parameters: int
    dtype: str
    split: WeightSplit = "tensor"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's facts. `exact_weights` tells bytes read from tensor headers from bytes worked out from sizes."""

    name: str
    architecture: str
    source: str
    layers: tuple[Layer, ...]
    hidden_size: int
    intermediate_size: int
    vocabulary: int
    context: Tokens
    dtype: str
    tied_embeddings: bool
    weights: tuple[WeightGroup, ...]
    exact_weights: bool
    experts: Experts | None = None
    quantization: str | None = None
    quantization_block: int | None = None
    """Neighbouring weights of a row that share one scale, whose blocks tensor parallelism must not cut; None where
    there are none, or where kernels pad them."""
    revision: str | None = None
    draft_layers: int = 0
    """Next-token-prediction layers stored beside the decoder layers; not counted in `layers`."""
    vision: bool = False
    kv_dtype: str | None = None
    """The cache's dtype where the checkpoint asks for one (ModelOpt and compressed-tensors do)."""
    vision_layers: int | None = None
    vision_width: int | None = None
    """Layers and hidden size of the vision tower, from which SGLang derives a reserve."""

    @property
    def selects_blocks(self) -> bool:
        """Whether layers with heads attend to selected blocks and cache a key for the selector (MiniMax M3)."""
        return any(isinstance(layer.mixer, Gqa) and layer.mixer.indexer is not None for layer in self.layers)

    @property
    def weight_bytes(self) -> Bytes:
        """All weights as stored, on all GPUs together."""
        return Bytes(sum(group.bytes for group in self.weights))
