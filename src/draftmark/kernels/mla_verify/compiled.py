"""Compile the portable kernel for any architecture without a GPU, and read what it takes: registers, spills, shared memory."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from draftmark.kernels.mla_verify.portable import attend, merge
from draftmark.kernels.mla_verify.tiles import Tile

POINTERS: Final = {
    "query": "*bf16",
    "draft_keys": "*bf16",
    "cache": "*bf16",
    "query_indptr": "*i64",
    "cache_indptr": "*i32",
    "cache_indices": "*i64",
    "cache_lengths": "*i32",
    "ancestors": "*i64",
    "full_mask": "*u8",
    "mask_indptr": "*i64",
    "out": "*bf16",
    "partial": "*fp32",
    "partial_lse": "*fp32",
}
FLOATS: Final = ("scale", "logit_cap", "key_scale", "value_scale")
MAPPED: Final = ("cache_stride", "draft_stride")
"""Strides, multiples of 16 elements, which lets the loads be 16 bytes wide."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a compiled kernel takes; `stack` bytes a thread are spills and arrays in local memory."""

    registers: int
    stack: int
    spill_stores: int
    shared: int
    wgmma: bool


def source(kernel: Any, constants: dict[str, Any], fp8: bool) -> ASTSource:
    """The kernel with its constants, typed as SGLang's tensors are, pointers aligned to 16 bytes."""
    types = dict(POINTERS)
    if fp8:
        types["cache"] = "*u8"
    signature, attributes = {}, {}
    for position, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in types:
            signature[name] = types[name]
            attributes[(position,)] = [["tt.divisibility", 16]]
        elif name in FLOATS:
            signature[name] = "fp32"
        else:
            signature[name] = "i32"
            if name in MAPPED:
                attributes[(position,)] = [["tt.divisibility", 16]]
    return ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)


def usage(compiled: Any) -> Usage:
    """Read a compiled kernel's machine code with the disassembler that comes with Triton."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        resources = tool_output(tools / "cuobjdump", "--dump-resource-usage", file.name)
        code = tool_output(tools / "cuobjdump", "--dump-sass", file.name)
    return Usage(
        registers=int(re.search(r"REG:(\d+)", resources).group(1)),
        stack=int(re.search(r"STACK:(\d+)", resources).group(1)),
        spill_stores=len(re.findall(r"\bSTL\b", code)),
        shared=compiled.metadata.shared,
        wgmma="HGMMA" in code,
    )


def tool_output(tool: Path, *arguments: str) -> str:
    """Standard output of one of Triton's tools."""
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


def attend_constants(tile: Tile, fp8: bool) -> dict[str, Any]:
    """Compile-time values of the main kernel as SGLang's verify step uses it."""
    return {
        "LATENT": 512,
        "ROPE": 64,
        "M": tile.rows,
        "N": tile.tokens,
        "BLOCK_REQUESTS": 16,
        "PAGE": 1,
        "HAS_LENGTHS": False,
        "HAS_CAP": False,
        "FP8": fp8,
    }


def compile_attend(architecture: int, tile: Tile, fp8: bool) -> Usage:
    """Compile the main kernel with one tile shape for one architecture (90 for sm_90)."""
    target = GPUTarget("cuda", architecture, 32)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return usage(triton.compile(source(attend, attend_constants(tile, fp8), fp8), target=target, options=options))
