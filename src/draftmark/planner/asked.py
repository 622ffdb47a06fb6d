"""What no engine can be asked for, whatever the model: refused by name before anything is worked out or started."""

from collections.abc import Iterator
from typing import Final

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.engines.embedded import refuse as refuse_embedded
from draftmark.errors import BadInput

DTYPES: Final = ("auto", "float32", "bfloat16", "float16", "float", "half")
"""What SGLang and vLLM serve in; the embedded engine knows the first four."""
_SHORT_NAMES: Final = {"auto": None, "float": "float32", "half": "float16"}
_KV_DTYPES: Final[dict[EngineName, tuple[str, ...]]] = {
    "sglang": sglang_flags.KV_DTYPES,
    "vllm": vllm_flags.KV_DTYPES,
}
_UNLIMITED: Final[dict[EngineName, str]] = {"sglang": "chunk", "vllm": "context"}
"""The size that the engine lets be -1: not chunked, and as long as fits."""
_FLAGS: Final = {
    "pool_tokens": "--pool-tokens", "chunk": "--chunk", "context": "--max-context", "max_running": "--max-running",
    "page": "--page-size", "memory_fraction": "--mem-fraction", "dtype": "--dtype", "kv_dtype": "--kv-dtype",
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
    engine = configuration.engine
    for field in ("pool_tokens", "chunk", "context", "max_running", "page"):
        value = getattr(configuration, field)
        unlimited = value == -1 and _UNLIMITED.get(engine) == field
        if value is not None and value < 1 and not unlimited:
            yield field, f"{value} is less than 1", "give a positive number, or leave it out for the engine's default"
    fraction = configuration.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        yield "memory_fraction", f"{fraction} is not above 0 and at most 1", "give a share like 0.85"
    if configuration.dtype is not None and configuration.dtype not in DTYPES:
        yield "dtype", f"unknown dtype {configuration.dtype!r}", f"known to {engine}: {', '.join(DTYPES)}"
    known = _KV_DTYPES.get(engine, ())
    if configuration.kv_dtype is not None and configuration.kv_dtype not in known:
        yield "kv_dtype", f"unknown dtype {configuration.kv_dtype!r}", f"known to {engine}: {', '.join(known)}"
    if engine == "vllm" and configuration.pool_tokens is not None:
        remedy = "give --mem-fraction, or paste a command with --num-gpu-blocks-override"
        yield "pool_tokens", "vLLM does not take its pool in tokens", remedy
