"""How a model lies on GPUs: pipeline stages, tensor-parallel shares of weights and heads, and what cannot work."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.model import Gqa, Layer, Mla, Model, NoMixer, WeightGroup
from draftmark.physics.memory import element_bytes, kv_heads_of, weight_bytes
from draftmark.planner.experts import expert_ranks, growth, slices
from draftmark.units import Bytes

_PLAIN: Final = ("f32", "float32", "f16", "float16", "bf16", "bfloat16")
"""Names of plain floats, in tensor headers and in configs."""
QUANTIZED_ROLES: Final = ("attention", "mlp", "experts", "shared_experts")
QUANTIZED_AT_LOAD: Final = {"fp8": 1.0, "w8a8_fp8": 1.0, "w8a8_int8": 1.0}
"""Bytes a parameter of what engines quantize while they load plain weights."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage: layers from `start` up to `end`."""

    number: int
    start: int
    end: int
    first: bool
    last: bool

    def layers(self, model: Model) -> tuple[Layer, ...]:
        """The stage's layers."""
        return model.layers[self.start : self.end]


def check(model: Model, configuration: Configuration, machine: Machine) -> None:
    """Refuse layouts that cannot work on a machine.

    Raises:
        BadInput: heads, experts, layers or GPUs do not divide as asked.
    """
    check_division(model, configuration)
    parallel = configuration.parallel
    if parallel.gpus > machine.count:
        raise BadInput(
            f"the layout takes {parallel.gpus} GPUs, there are {machine.count}",
            place="--gpu",
            remedy=f"plan for --gpu NAME:{parallel.gpus}, all hosts' GPUs together, or make the layout smaller",
        )


def check_division(model: Model, configuration: Configuration) -> None:
    """Refuse layouts that cannot work on any number of GPUs.

    Raises:
        BadInput: heads, experts, layers or GPUs do not divide as asked.
    """
    parallel = configuration.parallel
    if parallel.data_attention and parallel.tensor % max(1, parallel.data):
        raise _layout(f"{parallel.tensor} ranks do not divide by {parallel.data} attention groups", model, "--dp")
    attention = attention_ranks(parallel)
    for layer in model.layers:
        mixer = layer.mixer
        if isinstance(mixer, Gqa | Mla) and mixer.heads % attention:
            raise _layout(
                f"{mixer.heads} attention heads do not divide by {attention} tensor-parallel ranks", model, "--tp"
            )
        if isinstance(mixer, Gqa) and mixer.kv_heads % attention and attention % mixer.kv_heads:
            raise _layout(
                f"{mixer.kv_heads} KV heads and {attention} tensor-parallel ranks do not divide", model, "--tp"
            )
    if model.experts is not None and parallel.expert > 1 and model.experts.count % parallel.expert:
        raise _layout(f"{model.experts.count} experts do not divide by {parallel.expert}", model, "--ep")
    if parallel.pipeline > len(model.layers):
        cause = f"{len(model.layers)} layers are fewer than {parallel.pipeline} stages"
        raise _layout(cause, model, "--pp", f"choose at most {len(model.layers)} stages")
    check_columns(model, configuration)
    if attention % parallel.decode_context:
        raise _layout(f"{attention} ranks do not divide by {parallel.decode_context}", model, "--dcp-size")


def check_columns(model: Model, configuration: Configuration) -> None:
    """Refuse shares of experts and of dense feed-forward parts that are no whole columns, or cut a quantization block.

    Read in SGLang 0.5.15.post1 (layers/quantization/fp8.py, marlin_utils.py) and in vLLM 0.32
    (quantization/utils/fp8_utils.py, marlin_utils.py): all raise where a rank's share is no multiple of the block.
    Qwen3-235B-A22B-FP8: 1,536 columns / 8 ranks = 192, which is not a multiple of 128; whole experts on each rank are.
    MXFP4's kernels pad.

    Raises:
        BadInput: a rank's share is no multiple of the block, or no whole number.
    """
    parallel = configuration.parallel
    if model.quantization == "mxfp4":
        return
    if model.experts is not None:
        remedy = "choose fewer ranks, or expert parallelism over all of them"
        _check_share(model, model.experts.intermediate_size, slices(configuration), "of an expert", remedy)
    if any(not layer.experts and not isinstance(layer.mixer, NoMixer) for layer in model.layers):
        _check_share(model, model.intermediate_size, parallel.tensor, "of a layer", "choose fewer ranks")


def _check_share(model: Model, columns: int, ranks: int, where: str, remedy: str) -> None:
    block = model.quantization_block or 1
    if columns % (ranks * block) == 0 or ranks == 1:
        return
    wanted = f"no multiple of the quantization's {block}" if block > 1 else "no whole number"
    cause = f"{columns} columns {where} over {ranks} tensor-parallel ranks are {wanted} on each"
    raise _layout(cause, model, "--tp", remedy)


def served_dtype(model: Model, engine: EngineName) -> tuple[str, str]:
    """What SGLang or vLLM serves in unless told, and why: float32 checkpoints are cast to two bytes.

    Read in SGLang's model_config.py and in vLLM 0.32's config/model.py and platforms/cuda.py.
    """
    if model.dtype != "float32":
        return model.dtype, "the checkpoint's dtype"
    if engine == "vllm":
        return "bfloat16", "the checkpoint's float32, which vLLM casts by default (to float16 before Ampere)"
    served = "bfloat16" if model.architecture.startswith("Gemma") else "float16"
    return served, "the checkpoint's float32, which SGLang casts by default"


def _layout(cause: str, model: Model, flag: str, remedy: str = "choose a number that divides") -> BadInput:
    return BadInput(cause, place=f"{flag} ({model.name})", remedy=remedy)


def attention_ranks(parallel: Parallel) -> int:
    """Ranks that share one token's attention: all, or those of one group under DP attention."""
    return parallel.tensor // max(1, parallel.data) if parallel.data_attention else parallel.tensor


def stages(layers: int, pipeline: int) -> tuple[Stage, ...]:
    """SGLang's split: where layers do not divide, the last stages take one more each. 61 in 2: 30, 31."""
    base, more = divmod(layers, pipeline)
    return _staged([base + (1 if number >= pipeline - more else 0) for number in range(pipeline)])


def vllm_stages(layers: int, pipeline: int) -> tuple[Stage, ...]:
    """vLLM's split: the stages before the last take one more each, backwards. 61 in 4: 15, 15, 16, 15."""
    base, more = divmod(layers, pipeline)
    sizes = [base] * pipeline
    for back in range(2, more + 2):
        sizes[-back] += 1
    return _staged(sizes)


def _staged(sizes: list[int]) -> tuple[Stage, ...]:
    found = []
    start = 0
    for number, size in enumerate(sizes):
        last = number == len(sizes) - 1
        found.append(Stage(number=number, start=start, end=start + size, first=number == 0, last=last))
        start += size
    return tuple(found)


def stage_groups(model: Model, stage: Stage) -> tuple[WeightGroup, ...]:
    """Weights of one stage; a tied head is a copy of the embedding on the last of several stages."""
    chosen = []
    for group in model.weights:
        if group.role == "draft":
            continue
        if group.layer is not None:
            here = stage.start <= group.layer < stage.end
        elif group.role == "embedding":
            here = stage.first or (stage.last and model.tied_embeddings)
        elif group.role == "vision":
            here = stage.first
        else:
            here = stage.last
        if here:
            chosen.append(group)
    return tuple(chosen)


def served(group: WeightGroup, configuration: Configuration, model: Model) -> WeightGroup:
    """A group as it is held: plain floats in the served dtype or quantized while loading, stored quantization kept.

    Raises:
        BadInput: the quantization that is asked for is not known.
    """
    if group.dtype.lower() not in _PLAIN or configuration.dtype is None:
        return group
    size = element_bytes(configuration.dtype)
    if configuration.quantization is not None and model.quantization is None and group.role in QUANTIZED_ROLES:
        known = QUANTIZED_AT_LOAD.get(configuration.quantization)
        if known is None:
            raise BadInput(
                f"it is not known what {configuration.quantization!r} makes of a checkpoint that is not quantized",
                place="--quantization",
                remedy=f"known are {', '.join(QUANTIZED_AT_LOAD)}; or plan a checkpoint that is stored that way",
            )
        size = known
    return msgspec.structs.replace(group, bytes=Bytes(round(group.parameters * size)))


def held(group: WeightGroup, configuration: Configuration, model: Model, device: Device) -> WeightGroup:
    """A group as kernels hold it: as it is served, and experts with their padding.

    Raises:
        BadInput: the quantization that is asked for is not known.
    """
    found = served(group, configuration, model)
    if group.role != "experts":
        return found
    return msgspec.structs.replace(found, bytes=Bytes(round(found.bytes * growth(model, configuration, device))))


def rank_weights(model: Model, configuration: Configuration, stage: Stage, device: Device) -> Bytes:
    """Weights on one rank of a stage.

    Under DP attention the attention's weights divide by the ranks of one group only, embedding and dense parts are
    held whole, and experts divide by all ranks.
    """
    parallel = configuration.parallel
    groups = tuple(held(group, configuration, model, device) for group in stage_groups(model, stage))
    heads = kv_heads_of(model)
    if not parallel.data_attention:
        experts = tuple(group for group in groups if group.role == "experts")
        rest = tuple(group for group in groups if group.role != "experts")
        divided = weight_bytes(experts, expert_ranks(configuration), heads)
        return Bytes(divided + weight_bytes(rest, parallel.tensor, heads))
    attention = attention_ranks(parallel)
    total = 0
    for group in groups:
        if group.role in ("experts", "head"):
            ranks = parallel.tensor
        elif group.role == "attention":
            ranks = attention
        elif group.role == "embedding":
            ranks = 1
        else:
            ranks = parallel.tensor if group.role in ("mlp", "shared_experts") else 1
        total += weight_bytes((group,), ranks, heads)
    return Bytes(total)
