"""What no engine can be asked for, whatever the model: refused by name before anything is worked out or started."""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.engines.embedded import refuse as refuse_embedded
from draftmark.engines.flags import Flag
from draftmark.engines.offered import choices, ever, options, or_newest
from draftmark.errors import BadInput
from draftmark.physics.memory import ELEMENT_BYTES

TABLES: Final[dict[EngineName, tuple[Flag, ...]]] = {"sglang": sglang_flags.TABLE, "vllm": vllm_flags.TABLE}
DTYPES: Final = ("auto", "float32", "bfloat16", "float16", "float", "half")
"""What SGLang and vLLM serve in; the embedded engine knows the first four."""
_SHORT_NAMES: Final = {"auto": None, "float": "float32", "half": "float16", "bf16": "bfloat16"}
_SIZED: Final[dict[EngineName, tuple[str, ...]]] = {
    "embedded": (),
    "sglang": (*ELEMENT_BYTES, "auto", "bf16", "fp4_mx_block16", "mxfp8", "nvfp4"),
    "vllm": (*ELEMENT_BYTES, "auto", "fp8_inc", "fp8_ds_mla", "nvfp4", "nvfp4_4over6"),
}
"""Caches whose bytes a token are known."""
_BLOCK: Final = 16
"""Tokens of which vLLM's blocks are multiples since 0.18: every backend takes 16, or a fixed multiple of it."""
MOST: Final = 2**53
"""Largest number that is taken for meant."""
_UNLIMITED: Final[dict[EngineName, str]] = {"sglang": "chunk", "vllm": "context"}
"""The size that the engine lets be -1: not chunked, and as long as fits."""
_FLAGS: Final = {
    "pool_tokens": "--pool-tokens", "chunk": "--chunk", "context": "--max-context", "max_running": "--max-running",
    "page": "--page-size or --block-size", "memory_fraction": "--mem-fraction", "dtype": "--dtype",
    "kv_dtype": "--kv-dtype", "quantization": "--quantization", "graph_batch": "--cuda-graph-max-bs",
    "parallel": "--tp, --pp, --dp, --ep, --dcp",
}  # fmt: skip


def check(configuration: Configuration) -> Configuration:
    """The configuration with dtypes under one name each; `auto` is the engine's own choice.

    Raises:
        BadInput: a value that its engine cannot have, or a flag that it has not.
    """
    if configuration.engine == "embedded":
        refuse_embedded(configuration)
    for field, cause, remedy in _wrong(configuration):
        raise BadInput(cause, place=_FLAGS[field], remedy=remedy)
    asked = {name: getattr(configuration, name) for name in ("dtype", "kv_dtype")}
    return msgspec.structs.replace(
        configuration, **{name: _SHORT_NAMES.get(value, value) for name, value in asked.items() if value is not None}
    )


def _wrong(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    """The field, what is wrong with it, and what to do."""
    yield from _numbers(configuration)
    yield from _names(configuration)
    yield from _pages(configuration)
    engine, parallel = configuration.engine, configuration.parallel
    if engine == "vllm" and configuration.pool_tokens is not None:
        remedy = "give --mem-fraction, or paste a command with --num-gpu-blocks-override"
        yield "pool_tokens", "vLLM does not take its pool in tokens", remedy
    for flag in TABLES.get(engine, ()):
        field = flag.field.removeprefix("parallel.")
        if field == flag.field or getattr(parallel, field) in (1, False):
            continue
        if not set(flag.names) & set(options(engine, configuration.version)):
            cause = f"{engine} {or_newest(engine, configuration.version)} has no {flag.names[0]}"
            yield "parallel", cause, f"leave it out, or plan for {ever(engine)[flag.names[0]].since} or newer"


def _numbers(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    remedy = "give a positive number, or leave it out for the engine's default"
    for field in ("pool_tokens", "chunk", "context", "max_running", "page", "graph_batch"):
        value = getattr(configuration, field)
        unlimited = value == -1 and _UNLIMITED.get(configuration.engine) == field
        if value is not None and value < 1 and not unlimited:
            yield field, f"{value} is less than 1", remedy
        if value is not None and value > MOST:
            yield field, f"{value} is beyond anything that was built", remedy
    for name in ("tensor", "pipeline", "data", "expert", "decode_context"):
        ranks = getattr(configuration.parallel, name)
        if not 1 <= ranks <= MOST:
            yield "parallel", f"{ranks} {name.replace('_', ' ')} ranks cannot be", "give a positive number"
    fraction = configuration.memory_fraction
    if fraction is not None and not (math.isfinite(fraction) and 0 < fraction <= 1):
        yield "memory_fraction", f"{fraction} is not above 0 and at most 1", "give a share like 0.85"


def _names(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    engine, version = configuration.engine, configuration.version
    if configuration.dtype is not None and configuration.dtype not in DTYPES:
        yield "dtype", f"unknown dtype {configuration.dtype!r}", f"known to {engine}: {', '.join(DTYPES)}"
    for field, flag in (("kv_dtype", "--kv-cache-dtype"), ("quantization", "--quantization")):
        value, known = getattr(configuration, field), choices(engine, flag, version)
        if value is not None and known and value not in known:
            what = "dtype" if field == "kv_dtype" else "quantization"
            yield (
                field,
                f"unknown {what} {value!r}",
                f"known to {engine} {or_newest(engine, version)}: {', '.join(known)}",
            )
    if configuration.kv_dtype is not None and engine != "embedded" and configuration.kv_dtype not in _SIZED[engine]:
        cause = f"it is not known how many bytes a token takes in {configuration.kv_dtype!r}"
        yield "kv_dtype", cause, "plan another cache, like fp8_e4m3"


def _pages(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    """Pages that the engine refuses: vLLM's blocks, and SGLang's chunks that are not of whole pages."""
    page, chunk = configuration.page, configuration.chunk
    if page is None or page < 1:
        return
    if configuration.engine == "vllm":
        known = choices("vllm", "--block-size", configuration.version)
        if known and str(page) not in known:
            version = or_newest("vllm", configuration.version)
            sizes = ", ".join(sorted(known, key=int))
            yield "page", f"vLLM {version} has no blocks of {page} tokens", f"known: {sizes}"
        elif not known and page % _BLOCK:
            yield "page", f"blocks of {page} tokens fit no backend", f"give a multiple of {_BLOCK}"
    if configuration.engine == "sglang" and chunk is not None and chunk > 0 and chunk % page:
        yield "page", f"a chunk of {chunk} tokens is not of whole pages of {page}", "choose one that divides the other"
