"""How a rank holds experts: which ranks share them, and what MXFP4 experts become in the kernels that run them."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.engines.offered import or_newest
from draftmark.engines.versions import parse_version
from draftmark.hardware import Device
from draftmark.model import Model
from draftmark.planner.flags import has_flag, text_flag
from draftmark.planner.terms import Term

FOUR_BITS: Final = ("triton_kernel", "triton_kernels", "flashinfer_mxfp4", "marlin", "deep_gemm")
"""SGLang's expert backends that read MXFP4; any other is given bfloat16."""
_BLACKWELL: Final = ("sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
_BITS: Final = 4.25
"""Of an MXFP4 parameter, its share of a scale of 8 bits a block of 32 included."""


def expert_ranks(configuration: Configuration) -> int:
    """Ranks that share the experts: tensor-parallel ones; vLLM's data-parallel ones share them too.

    vLLM 0.32, fused_moe/config.py (flatten_tp_across_dp_and_pcp): whole experts or slices, over tensor x data ranks.
    """
    parallel = configuration.parallel
    return parallel.tensor * (parallel.data if configuration.engine == "vllm" else 1)


def slices(configuration: Configuration) -> int:
    """Ranks that an expert's columns are cut over: all that share experts, or under expert parallelism fewer or one."""
    return max(1, expert_ranks(configuration) // max(1, configuration.parallel.expert))


def growth(model: Model, configuration: Configuration, device: Device) -> float:
    """Bytes of a rank's experts as they are held, to their bytes in the checkpoint; 1 but for MXFP4.

    gpt-oss-20b, 2,880 columns padded to 2,944 and 2,880 elements to 3,072: 13.64 GiB in a start of vLLM 0.19 on an
    H100, 13.72 on a GB10, and 12.8 as stored. A start of SGLang on an H200 showed no padding on one rank.
    """
    if model.quantization != "mxfp4" or model.experts is None or configuration.engine == "embedded":
        return 1.0
    wide, high = model.hidden_size, model.experts.intermediate_size
    cut = -(-high // slices(configuration))
    to_hidden, to_columns = paddings(configuration, device)
    padded = _up(wide, to_hidden) * _up(cut, to_columns) * slices(configuration) / (wide * high)
    return padded * (16 / _BITS if unpacked(model, configuration, device) else 1.0)


def explained(weights: Term, model: Model, configuration: Configuration, device: Device) -> Term:
    """A rank's weights, with the factor of its experts said where there is one."""
    factor = growth(model, configuration, device)
    if factor == 1.0:
        return weights
    return msgspec.structs.replace(weights, why=f"{weights.why}; experts x {factor:.2f}, as kernels hold mxfp4")


def paddings(configuration: Configuration, device: Device) -> tuple[int, int]:
    """Multiples to which kernels pad the hidden size and a rank's columns of an MXFP4 expert.

    vLLM 0.32.0, oracle/mxfp4.py (mxfp4_round_up_hidden_size_and_intermediate_size): Marlin's and TensorRT's; those of
    Triton on Hopper pad columns to 64 there, and starts with it that say so were not found.
    SGLang 0.5.15.post1 and 0.5.23, mxfp4.py (create_weights) and fused_moe_triton/layer.py.
    """
    if device.kind == "rocm":
        return 256, 256
    if configuration.engine == "vllm":
        return 256, 128
    if device.architecture not in _BLACKWELL:
        return 1, 64
    version = parse_version(or_newest("sglang", configuration.version))
    older = any(version) and version < (0, 5, 23) and device.architecture in ("sm_100", "sm_103")
    return 256, 256 if older else 128


def unpacked(model: Model, configuration: Configuration, device: Device) -> bool:
    """Whether SGLang turns MXFP4 experts into bfloat16 while loading, which takes 3.8 times their memory.

    0.5.15.post1 and 0.5.23, mxfp4.py (process_weights_after_loading, upcast_from_mxfp): with every backend that does
    not read MXFP4. Off Blackwell gpt-oss gets one that does only without expert parallelism and without --quantization
    (_gpt_oss_overrides).
    """
    if model.quantization != "mxfp4" or configuration.engine != "sglang" or device.kind != "cuda":
        return False
    named = text_flag(configuration, "--moe-runner-backend")
    if named not in (None, "auto"):
        return named not in FOUR_BITS
    whole = configuration.parallel.expert > 1 or configuration.quantization is not None
    return whole and device.architecture not in _BLACKWELL


def notes(model: Model, configuration: Configuration, device: Device) -> tuple[str, ...]:
    """Says so where MXFP4 experts are held in bfloat16, and where tokens go to experts through buffers of no term."""
    found = []
    if unpacked(model, configuration, device):
        why = "SGLang turns mxfp4 experts into bfloat16 with this expert backend (mxfp4.py: upcast_from_mxfp)"
        kept = "they stay in 4 bits without --ep-size, --quantization and --moe-runner-backend"
        found.append(f"{why}, which takes 3.8 times their memory; {kept}")
    through = text_flag(configuration, "--moe-a2a-backend")
    if has_flag(configuration, "--enable-deepep-moe"):
        through = through or "deepep"
    if model.experts is not None and through not in (None, "none"):
        found.append(f"{through}'s buffers, made at the first request, are in no term: leave headroom for them")
    return tuple(found)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
