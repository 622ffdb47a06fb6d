"""Compile kernels for any architecture without a GPU, and read what they take: registers, spills, shared memory."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from draftmark.kernels.mla_verify.portable import attend, attend_drafts, merge
from draftmark.kernels.mla_verify.tiles import DRAFT_TOKENS, LEAST_REQUESTS, Tile

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
    """What a kernel that Triton compiled takes."""
    return read_usage(compiled.asm["cubin"], compiled.metadata.name, compiled.metadata.shared)


def read_usage(cubin: bytes, name: str, shared: int) -> Usage:
    """Read machine code with Triton's disassembler; dynamic shared memory is known to the host only."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        resources = tool_output(tools / "cuobjdump", "--dump-resource-usage", file.name)
        code = tool_output(tools / "cuobjdump", "--dump-sass", file.name)
    resources = resources.partition(f"Function {name}:")[2]
    code = code.partition(f"Function : {name}")[2].partition("Function : ")[0]
    return Usage(
        registers=number_after("REG", resources),
        stack=number_after("STACK", resources),
        spill_stores=len(re.findall(r"\bSTL\b", code)),
        shared=shared,
        wgmma="HGMMA" in code,
    )


def number_after(label: str, text: str) -> int:
    """The first number that stands behind `label:`.

    Raises:
        RuntimeError: there is none, so the disassembler prints something new.
    """
    match = re.search(rf"{label}:(\d+)", text)
    if match is None:
        raise RuntimeError(f"no {label} in {text[:200]!r}")
    return int(match.group(1))


def tool_output(tool: Path, *arguments: str) -> str:
    """Standard output of one of Triton's tools."""
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


SIZES: Final = {"LATENT": 512, "HAS_LENGTHS": False}
"""Compile-time values that all kernels share, as SGLang's verify step uses them."""


def compile_for(architecture: int, built: ASTSource, warps: int, stages: int) -> Usage:
    """Compile a kernel for one architecture (90 for sm_90)."""
    options = {"num_warps": warps, "num_stages": stages}
    return usage(triton.compile(built, target=GPUTarget("cuda", architecture, 32), options=options))


def compile_attend(architecture: int, tile: Tile, fp8: bool) -> Usage:
    """The main kernel with one tile, as the plug-in uses it: indices that name single slots, no logit cap."""
    more = {"ROPE": 64, "M": tile.rows, "N": tile.tokens, "BLOCK_REQUESTS": LEAST_REQUESTS, "PAGE": 1}
    built = source(attend, SIZES | more | {"HAS_CAP": False, "FP8": fp8}, fp8)
    return compile_for(architecture, built, tile.warps, tile.stages)


def compile_drafts(architecture: int, rows: int, warps: int) -> Usage:
    """The kernel of the draft's own nodes."""
    more = {"ROPE": 64, "M": rows, "N": DRAFT_TOKENS, "MASK": "full", "HAS_CAP": False}
    return compile_for(architecture, source(attend_drafts, SIZES | more, fp8=False), warps, 2)


def compile_merge(architecture: int) -> Usage:
    """The sum of the parts."""
    more = {
        "M": 64,
        "N": 64,
        "BLOCK_REQUESTS": LEAST_REQUESTS,
        "BLOCK_TEAMS": 256,
        "COLUMNS": 128,
        "PARTS": 16,
        "ROWS": 1,
    }
    return compile_for(architecture, source(merge, SIZES | more, fp8=False), 4, 2)
