"""KV-cache specifications, layer by layer, and the groups and blocks that vLLM makes of them."""

from collections import defaultdict
from typing import Final, Literal

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.model import Gqa, Layer, Mixer, Mla, Model, Recurrent
from draftmark.physics.memory import cached_elements, element_bytes, state_elements
from draftmark.planner.layout import Stage
from draftmark.planner.speculation import drafts

Kind = Literal["full", "window", "chunk", "state"]

CHUNKED: Final = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
SPARSE_ROW: Final = 656
"""fp8_ds_mla: 512 latents in fp8, 4 scales of 4 bytes, 64 rotary elements in bf16."""
ALIGNMENT: Final = 16
"""Tokens to whose multiple an attention block is raised beside recurrent states."""
SELECTED_BLOCK: Final = 128
"""Tokens a block of layers that select blocks: MiniMax M3's kernels take no other (vLLM 0.32)."""
_QUANT_BLOCK: Final = 128
_SELECTOR_ELEMENT: Final = 2
"""Bytes of an element of MiniMax M3's selector keys: bf16 whatever the cache's dtype, unless a flag says otherwise."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's cache on one rank. `token` is bytes a token; `state` bytes a request, for recurrent layers."""

    kind: Kind
    token: int = 0
    width: int | None = None
    state: int = 0


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share a block table."""

    spec: Spec
    layers: int
    block: int
    """Tokens a block."""

    def blocks(self, length: int, in_flight: int, context_ranks: int, draft: int) -> int:
        """Blocks that one request of `length` tokens takes."""
        if self.spec.kind == "state":
            return 1 + draft
        if self.spec.kind == "window":
            held = min((self.spec.width or 0) - 1 + in_flight, length)
            return -(-held // self.block) + 1
        if self.spec.kind == "chunk":
            return -(-min((self.spec.width or 0) + in_flight, length) // self.block)
        share = -(-length // context_ranks)
        return -(-share // self.block)


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of one rank, and the bytes of one block, which every group can take."""

    groups: tuple[Group, ...]
    block_bytes: int

    def request_blocks(self, length: int, configuration: Configuration) -> int:
        """Blocks that one request of `length` tokens takes in all groups."""
        draft = configuration.speculative
        extra = (draft.draft_tokens or 0) if draft is not None else 0
        ranks = configuration.parallel.decode_context
        chunk = configuration.chunk or 0
        return sum(group.blocks(length, chunk, ranks, extra) for group in self.groups)

    @property
    def token_bytes(self) -> float:
        """What one more token of a long request takes."""
        full = (group for group in self.groups if group.spec.kind == "full")
        return sum(self.block_bytes / group.block for group in full)

    @property
    def smallest_block(self) -> int:
        """Tokens of the smallest block."""
        return min(group.block for group in self.groups)


def specifications(model: Model, configuration: Configuration, stage: Stage, draft: Model | None) -> tuple[Spec, ...]:
    """Every layer's specification on one rank of `stage`, draft layers on the last one."""
    found: list[Spec] = []
    for layer in stage.layers(model):
        found += layer_specs(layer, model, configuration)
    if stage.last and drafts(configuration):
        found += draft_specs(model, configuration, draft)
    if not found:
        raise BadInput("the model caches nothing that vLLM pages", place=model.name, remedy="plan another model")
    return tuple(found)


def draft_specs(model: Model, configuration: Configuration, draft: Model | None) -> list[Spec]:
    """The draft's layers: those of its own model, or copies of the last attention layer.

    MiniMax M3 keeps a cache for each of its modules, each with a selector (vLLM 0.32's models/minimax_m3).
    """
    if draft is not None:
        return [spec for layer in draft.layers for spec in layer_specs(layer, draft, configuration)]
    attending = [layer for layer in model.layers if isinstance(layer.mixer, Gqa | Mla)]
    if not attending or not model.draft_layers:
        return []
    copies = model.draft_layers if model.selects_blocks else 1
    return layer_specs(attending[-1], model, configuration) * copies


def layer_specs(layer: Layer, model: Model, configuration: Configuration) -> list[Spec]:
    """One layer's caches: one, none, or two where keys are selected."""
    mixer = layer.mixer
    dtype = configuration.kv_dtype or configuration.dtype or "bfloat16"
    ranks = configuration.parallel.tensor
    if isinstance(mixer, Gqa):
        return heads_specs(mixer, dtype, ranks, chunked=model.architecture in CHUNKED)
    if isinstance(mixer, Mla):
        return latent_specs(mixer, dtype)
    if isinstance(mixer, Recurrent):
        return [Spec(kind="state", state=state_bytes(mixer, configuration))]
    return []


def heads_specs(mixer: Gqa, dtype: str, ranks: int, *, chunked: bool) -> list[Spec]:
    """Keys and values of one rank's heads; with a selector also its key, a cache of its own.

    The selector's key has one head, which every rank holds whole: MiniMax M3's takes 128 * 2 = 256 bytes a token beside
    2,048 bytes of keys and values in bf16 on one GPU. It has no scales and stays in bf16 under an fp8 cache.

    Raises:
        BadInput: the cache's dtype is none for heads.
    """
    if not mixer.cached:
        return []
    if dtype == "fp8_ds_mla":
        cause = "fp8_ds_mla is a layout of latents, and this model has heads"
        raise BadInput(cause, place="--kv-cache-dtype", remedy="plan another cache, like fp8")
    elements = cached_elements(mixer, ranks)
    # NVFP4 has a scale of 8 bits for each block of 16 (0.32.0, torch_utils.py: nvfp4_kv_cache_full_dim).
    token = elements // 2 + elements // 16 if dtype in NVFP4 else int(elements * element_bytes(plain(dtype)))
    if mixer.window is not None:
        return [Spec(kind="chunk" if chunked else "window", token=token, width=mixer.window)]
    if mixer.indexer is None:
        return [Spec(kind="full", token=token)]
    return [Spec(kind="full", token=token), Spec(kind="full", token=mixer.indexer.head_dim * _SELECTOR_ELEMENT)]


NVFP4: Final = ("nvfp4", "nvfp4_4over6")
"""Caches of 4 bits, which only heads have; latents have layouts of their own."""


def plain(dtype: str) -> str:
    """vLLM's names of 8-bit caches."""
    return "fp8" if dtype in ("fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla") else dtype


def latent_specs(mixer: Mla, dtype: str) -> list[Spec]:
    """A latent; with a selector also its key with scales, which is a cache of its own.

    Raises:
        BadInput: the cache's dtype is none for latents.
    """
    if dtype in NVFP4:
        cause = f"latent attention has no {dtype} cache"
        raise BadInput(cause, place="--kv-cache-dtype", remedy="plan another cache, like fp8")
    width = mixer.latent_rank + mixer.rope_dim
    token = int(width * element_bytes(plain(dtype)))
    if mixer.indexer is None:
        return [Spec(kind="full", token=token)]
    if plain(dtype) == "fp8":
        token = SPARSE_ROW
    key = mixer.indexer.head_dim
    return [Spec(kind="full", token=token), Spec(kind="full", token=key + key // _QUANT_BLOCK * 4)]


def state_bytes(mixer: Mixer, configuration: Configuration) -> int:
    """One request's state in one recurrent layer; speculation lengthens the convolution's window."""
    if not isinstance(mixer, Recurrent):
        return 0
    convolution, state = state_elements(mixer, configuration.parallel.tensor)
    draft = configuration.speculative
    extra = (draft.draft_tokens or 0) if draft is not None else 0
    taps = mixer.convolution_taps or 1
    convolution = convolution // taps * (taps + extra)
    flags = configuration.flags
    asked = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--mamba-ssm-cache-dtype"), None)
    dtype = asked or mixer.state_dtype or configuration.dtype or "bfloat16"
    return convolution * 2 + int(state * element_bytes(dtype))


def grouped(specs: tuple[Spec, ...], configuration: Configuration) -> Grouping:
    """Groups as vLLM forms them: one where all layers keep the same tokens, else several of equal size."""
    block = configuration.page or 16
    if "--disable-hybrid-kv-cache-manager" in configuration.flags:
        specs = tuple(msgspec.structs.replace(one, kind="full") if one.kind != "state" else one for one in specs)
    kinds = {(spec.kind, spec.width) for spec in specs}
    if len(kinds) == 1:
        total = sum(spec.token for spec in specs) * block
        return Grouping(
            groups=(Group(spec=specs[0], layers=len(specs), block=block),),
            block_bytes=total if total else max(spec.state for spec in specs) * len(specs),
        )
    block, page = common_page(specs, block)
    buckets: dict[Spec, int] = defaultdict(int)
    for spec in specs:
        buckets[spec] += 1
    fewest, most = min(buckets.values()), max(buckets.values())
    size = most if most < fewest * 1.5 else fewest
    groups = [
        Group(spec=spec, layers=size, block=block if spec.kind == "state" else page // spec.token)
        for spec, count in buckets.items()
        for _ in range(-(-count // size))
    ]
    return Grouping(groups=tuple(groups), block_bytes=size * page)


def common_page(specs: tuple[Spec, ...], block: int) -> tuple[int, int]:
    """The block in tokens and the page in bytes that all layers share.

    Beside recurrent states the attention's block is raised until its page holds a state; smaller pages of other
    layers are made equal by more tokens a block.
    """
    widest = max((spec.token for spec in specs), default=0)
    state = max((spec.state for spec in specs), default=0)
    if state and widest:
        needed = -(-state // (ALIGNMENT * widest)) * ALIGNMENT
        block = max(block, needed)
    return block, max(block * widest, state)
