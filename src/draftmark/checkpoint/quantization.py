"""How a checkpoint's weights are quantized, as its config says: bits a parameter, by role and layer."""

import fnmatch
import re
from typing import Any, Final

import msgspec

from draftmark.checkpoint.fields import Fields
from draftmark.errors import BadInput
from draftmark.model import WeightRole

PLAIN_BITS: Final = {"bfloat16": 16, "float16": 16, "float32": 32, "half": 16}
QUANTIZED_ROLES: Final = {"attention", "mlp", "experts", "shared_experts"}
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "attention": ("self_attn.q_proj", "mixer.q_proj", "linear_attn.in_proj_qkvz", "mixer.in_proj"),
    "mlp": ("mlp.gate_proj", "mlp.up_proj", "mixer.up_proj"),
    "experts": ("mlp.experts.0.gate_proj", "mixer.experts.0.up_proj", "block_sparse_moe.experts.0.w1"),
    "shared_experts": ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj", "mixer.shared_experts.up_proj"),
}
_PREFIXES: Final = ("model.layers", "language_model.model.layers", "model.language_model.layers", "backbone.layers")


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is "none" for plain weights; `ignored` are patterns of modules that stay plain."""

    name: str
    weight_bits: float
    dtype: str
    ignored: tuple[str, ...] = ()
    only_experts: bool = False
    kv_dtype: str | None = None
    """The cache's dtype where the checkpoint asks for one."""
    block: int | None = None
    """Neighbouring weights of a row with one scale, which ranks must not cut."""

    @property
    def plain_bits(self) -> int:
        """Bits of a parameter that is not quantized."""
        return PLAIN_BITS[self.dtype]

    def bits(self, role: WeightRole, layer: int | None) -> float:
        """Bits a parameter of `role` in `layer`, scales and zero points included."""
        if self.name == "none" or role not in QUANTIZED_ROLES or (self.only_experts and role != "experts"):
            return self.plain_bits
        if layer is not None and self._ignores(role, layer):
            return self.plain_bits
        return self.weight_bits

    def _ignores(self, role: WeightRole, layer: int) -> bool:
        names = [f"{prefix}.{layer}.{name}" for prefix in _PREFIXES for name in _NAMES[role]]
        return any(_matches(pattern, name) for pattern in self.ignored for name in names)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    if "*" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    return name == pattern or name.startswith(pattern + ".")


def read_quantization(fields: Fields, beside: dict[str, Any] | None, dtype: str) -> Quantization:
    """From `quantization_config`, or from the hf_quant_config.json that ModelOpt writes `beside` it.

    Raises:
        BadInput: the method is not known.
    """
    if dtype not in PLAIN_BITS:
        raise BadInput(f"unknown dtype {dtype!r}", place=fields.place, remedy=f"known: {', '.join(PLAIN_BITS)}")
    part = fields.part("quantization_config")
    values = part.values or fields.language().part("quantization_config").values
    if values:
        found = _of_config(Fields(values, part.place), dtype)
        return msgspec.structs.replace(found, kv_dtype=_kv_dtype(values, beside))
    if beside is not None:
        own = Fields(beside, "hf_quant_config.json").part("quantization")
        values = own.values
        found = _modelopt(own, dtype)
        return msgspec.structs.replace(found, kv_dtype=_kv_dtype(values, beside))
    return Quantization(name="none", weight_bits=PLAIN_BITS[dtype], dtype=dtype)


def _kv_dtype(values: dict[str, Any], beside: dict[str, Any] | None) -> str | None:
    """The cache's dtype: ModelOpt names an algorithm, compressed-tensors describes a scheme."""
    modelopt = Fields(beside or {}, "hf_quant_config.json").part("quantization").values
    algorithm = values.get("kv_cache_quant_algo") or modelopt.get("kv_cache_quant_algo")
    scheme = values.get("kv_cache_scheme")
    if algorithm is None and isinstance(scheme, str):
        algorithm = scheme
    if isinstance(algorithm, str) and algorithm.upper() == "FP8":
        return "fp8_e4m3"
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "fp8_e4m3"
    return None


def _of_config(fields: Fields, dtype: str) -> Quantization:
    method = fields.text("quant_method") or ""
    ignored = tuple(
        str(item)
        for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
        for item in fields.items(name) or []
    )
    if method == "fp8":
        sizes = fields.items("weight_block_size")
        return Quantization(
            name="fp8",
            weight_bits=8 + 32 / _block(fields),
            dtype=dtype,
            ignored=ignored,
            block=int(sizes[1]) if sizes else None,
        )
    if method == "mxfp4":
        return Quantization(name="mxfp4", weight_bits=4.25, dtype=dtype, ignored=ignored, only_experts=True)
    if method in ("awq", "gptq"):
        group = fields.maybe_integer("group_size") or 128
        bits = fields.integer("bits", "w_bit")
        scales = (16 + bits) / group if group > 0 else 0.0
        return Quantization(
            name=method,
            weight_bits=bits + scales,
            dtype=dtype,
            ignored=ignored,
            block=group if group > 0 else None,
        )
    if method == "compressed-tensors":
        return _compressed(fields, dtype, ignored)
    if method == "modelopt" or (not method and fields.text("quant_algo")):
        return _modelopt(fields, dtype)
    raise BadInput(
        f"unknown quantization {method!r}",
        place=fields.place,
        remedy="known: fp8, mxfp4, awq, gptq, compressed-tensors, modelopt",
    )


def _block(fields: Fields) -> int:
    """Weights that share one scale."""
    sizes = fields.items("weight_block_size")
    if sizes is None:
        return 2**30
    if len(sizes) != 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise fields.refusal(f"'weight_block_size' is {sizes}, not two positive sizes")
    return int(sizes[0]) * int(sizes[1])


def _compressed(fields: Fields, dtype: str, ignored: tuple[str, ...]) -> Quantization:
    groups = fields.part("config_groups")
    weights = [groups.part(name).part("weights") for name in groups.values]
    if not weights:
        raise BadInput(
            "compressed-tensors without config_groups", place=fields.place, remedy="pass the config.json as published"
        )
    bits = max(float(weight.maybe_size("num_bits") or 16) for weight in weights)
    group = max(weight.maybe_integer("group_size") or 0 for weight in weights)
    fmt = fields.text("format") or ""
    scale = 8.0 if fmt.startswith(("nvfp4", "mxfp4")) else 16.0
    return Quantization(
        name=f"compressed-tensors int{bits:.0f}" if scale == 16.0 else f"compressed-tensors {fmt.split('-')[0]}",
        weight_bits=bits + (scale / group if group > 0 else 0.0),
        dtype=dtype,
        ignored=ignored,
        block=group if group > 0 and scale == 16.0 else None,
    )


def _modelopt(fields: Fields, dtype: str) -> Quantization:
    algorithm = (fields.text("quant_algo") or "").upper()
    names = ("exclude_modules", "ignore", "modules_to_not_convert")
    ignored = tuple(str(item) for name in names for item in fields.items(name) or [])
    bits = {"FP8": 8.0, "NVFP4": 4.5, "MIXED_PRECISION": 4.5, "W4A8_AWQ": 4.125, "FP8_PB_WO": 8.002}
    if algorithm not in bits:
        raise BadInput(
            f"unknown ModelOpt quantization {algorithm!r}", place=fields.place, remedy=f"known: {', '.join(bits)}"
        )
    return Quantization(name=f"modelopt {algorithm.lower()}", weight_bits=bits[algorithm], dtype=dtype, ignored=ignored)
