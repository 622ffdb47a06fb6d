"""The Hopper kernel's host side: compile the `.cu` files with NVRTC at first use, launch with the CUDA driver."""

import ctypes
import functools
from collections.abc import Callable
from importlib import resources
from typing import Any, Final

import torch

from draftmark.kernels.mla_verify import schedule
from draftmark.kernels.mla_verify.problem import Problem

FILES: Final = ("hopper_line.cu", "hopper_attend.cu", "hopper_merge.cu")
ROWS: Final = 64
TOKENS: Final = 64
THREADS: Final = 384
SHARED: Final = 3 * 9 * 8192 + 8192 + 2 * 64 * 4 + 128
"""Bytes of shared memory: query, two stages, weights, small arrays and barriers."""
MERGE_COLUMNS: Final = 128
MERGE_THREADS: Final = 256
MERGE_GROUPS: Final = 16
MOST_TEAMS: Final = 160
MIN_TILES: Final = 1
ARCHITECTURE: Final = "sm_90a"
LOG2E: Final = 1.4426950408889634
MASKS: Final = {"causal": 0, "ancestors": 1, "full": 2}

Reserve = Callable[[int, int, torch.device], tuple[torch.Tensor, torch.Tensor]]


class Arguments(ctypes.Structure):
    """The struct of the same name in hopper_line.cu, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "draft_keys", "cache")),
        *((name, ctypes.c_void_p) for name in ("query_indptr", "cache_indptr", "cache_indices", "mask_indptr")),
        *((name, ctypes.c_void_p) for name in ("ancestors", "full_mask", "partial", "out", "partial_lse")),
        *((name, ctypes.c_longlong) for name in ("cache_stride", "draft_stride")),
        *((name, ctypes.c_int) for name in ("requests", "heads", "teams", "blocks", "min_tiles", "groups", "mask")),
        *((f"wide_{name}", ctypes.c_int) for name in ("query_indptr", "cache_indptr", "cache_indices", "mask_indptr")),
        *((name, ctypes.c_float) for name in ("scale", "cap", "cap_inner")),
    )


def refusal(problem: Problem) -> str | None:
    """Why this kernel cannot serve the problem; None where it can."""
    if problem.query.dtype != torch.bfloat16 or problem.cache.dtype != torch.bfloat16:
        return f"it takes bfloat16 only, not {problem.query.dtype} on {problem.cache.dtype}"
    if (problem.latent, problem.width) != (512, 576):
        return f"it takes latent 512 and width 576 only, not {problem.latent} and {problem.width}"
    if problem.page_size != 1 or problem.cache_lengths is not None:
        return "it takes page size 1 only"
    if problem.key_scale != 1.0 or problem.value_scale != 1.0:
        return "it takes no scale for the cache"
    rows = (problem.query, problem.draft_keys, problem.cache)
    if any(tensor.data_ptr() % 16 for tensor in rows) or any(tensor.stride(0) % 8 for tensor in rows):
        return "it takes rows that start at multiples of 16 bytes only"
    return None


def wgmma_wrapper(name: str, columns: int, a_in_registers: bool, transpose_b: bool) -> str:
    """One wgmma of 64 x `columns` x 16 in bf16 with float32 sums, as a CUDA function with its long operand list."""
    count = columns // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    shape = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"
    if a_in_registers:
        given, inputs = "u32 a0, u32 a1, u32 a2, u32 a3", '"r"(a0), "r"(a1), "r"(a2), "r"(a3)'
        left, used, trans = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}", 4, f"{int(transpose_b)}"
    else:
        given, inputs, left, used = "u64 a", '"l"(a)', f"%{count}", 1
        trans = f"0, {int(transpose_b)}"
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{count}], {given}, u64 b, int keep = 1) {{\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + used + 1}, 0;\\n"\n'
        f'        "{shape} {{{sums}}}, {left}, %{count + used}, p, 1, 1, {trans};\\n}}"\n'
        f'        : {outputs}\n        : {inputs}, "l"(b), "r"(keep));\n}}\n'
    )


def source() -> str:
    """The whole CUDA source as it is compiled: types, wgmma wrappers, then the files in order. No header is needed."""
    types = "using i64 = long long; using u32 = unsigned int; using u64 = unsigned long long;\n"
    infinity = "#define INFINITY __int_as_float(0x7f800000)\n"
    wrappers = (
        wgmma_wrapper("wgmma_scores", 64, a_in_registers=False, transpose_b=False),
        wgmma_wrapper("wgmma_values_registers", 256, a_in_registers=True, transpose_b=True),
        wgmma_wrapper("wgmma_values_shared", 256, a_in_registers=False, transpose_b=True),
    )
    here = resources.files("draftmark.kernels.mla_verify")
    return types + infinity + "".join(wrappers) + "".join(here.joinpath(name).read_text() for name in FILES)


def compile_cubin() -> tuple[bytes, str]:
    """Machine code for sm_90a and the compiler's log.

    Raises:
        ImportError: cuda-bindings or the NVRTC library is missing.
        RuntimeError: the source does not compile; the log says why.
    """
    from cuda.bindings import nvrtc

    program = checked(nvrtc.nvrtcCreateProgram(source().encode(), b"hopper.cu", 0, [], []))
    options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--ptxas-options=-v", b"--std=c++17"]
    outcome = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
    checked(nvrtc.nvrtcGetProgramLog(program, log))
    if outcome != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(log.decode())
    cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin, log.rstrip(b"\0 ").decode()


def checked(answer: tuple[Any, ...]) -> Any:
    """What a CUDA call answered beside its status.

    Raises:
        RuntimeError: the status is an error.
    """
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"{type(status).__name__}: {status.name}")
    return values[0] if values else None


@functools.cache
def obstacle() -> str | None:
    """Why the kernel cannot be compiled and loaded here, None where it can; it takes seconds, once.

    cuda-bindings and NVRTC come with PyTorch's CUDA wheels, as a rule.
    """
    try:
        functions(torch.cuda.current_device())
    except (ImportError, RuntimeError, OSError) as reason:
        return f"{type(reason).__name__}: {reason}".splitlines()[0]
    return None


@functools.cache
def functions(device: int) -> tuple[Any, Any]:
    """The loaded kernels `attend` and `merge` on one device."""
    from cuda.bindings import driver

    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()
        module = checked(driver.cuModuleLoadData(machine_code()))
        attend, merge = (checked(driver.cuModuleGetFunction(module, name)) for name in (b"attend", b"merge"))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(attend, limit, SHARED))
    return attend, merge


@functools.cache
def machine_code() -> bytes:
    """The compiled kernels, once a process."""
    return compile_cubin()[0]


def launch(problem: Problem, out: torch.Tensor, reserve: Reserve) -> None:
    """Two launches on the current device and stream: all parts, then their sum, which starts while the first ends.

    The problem is one that this kernel does not refuse.
    """
    device = out.device
    blocks = schedule.row_blocks(problem.max_nodes, problem.heads, ROWS)
    count = torch.cuda.get_device_properties(device).multi_processor_count
    teams = min(schedule.teams_for(count, blocks), MOST_TEAMS)
    rows = (teams + problem.requests) * blocks * ROWS
    partial, lse = reserve(rows * problem.latent // 2, rows, device)
    arguments = pack(problem, out, partial, lse, teams, blocks)
    each = MERGE_GROUPS // arguments.groups
    merge_grid = (-(-problem.max_nodes * problem.heads // each), problem.requests, problem.latent // MERGE_COLUMNS)
    attend, merge = functions(torch.cuda.current_device())
    start(attend, (blocks, teams, 1), THREADS, SHARED, arguments)
    start(merge, merge_grid, MERGE_THREADS, 0, arguments, early=True)


def start(
    function: Any, grid: tuple[int, int, int], threads: int, shared: int, arguments: Arguments, *, early: bool = False
) -> None:
    """Launch on the current stream; `early` lets it begin while the kernel before it ends (that one says when)."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = shared, torch.cuda.current_stream().cuda_stream
    if early:
        overlap = driver.CUlaunchAttribute()
        overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        config.attrs = [overlap]
    config.numAttrs = int(early)
    address = ctypes.c_void_p(ctypes.addressof(arguments))
    checked(driver.cuLaunchKernelEx(config, function, ctypes.addressof(address), 0))


def merge_groups(teams: int, requests: int) -> int:
    """Threads that share a row's parts, a power of two: about a quarter of the parts that a request has on average."""
    return min(MERGE_GROUPS, 1 << max(0, (teams // requests // 4)).bit_length())


def pack(
    problem: Problem, out: torch.Tensor, partial: torch.Tensor, lse: torch.Tensor, teams: int, blocks: int
) -> Arguments:
    """The kernels' arguments: addresses, strides in bytes, sizes."""
    words, mask, starts = problem.ancestors, problem.full_mask, problem.mask_indptr
    cap, scale = problem.logit_cap * LOG2E, problem.scale * LOG2E
    return Arguments(
        query=problem.query.data_ptr(),
        draft_keys=problem.draft_keys.data_ptr(),
        cache=problem.cache.data_ptr(),
        query_indptr=problem.query_indptr.data_ptr(),
        cache_indptr=problem.cache_indptr.data_ptr(),
        cache_indices=problem.cache_indices.data_ptr(),
        mask_indptr=None if starts is None else starts.data_ptr(),
        ancestors=None if words is None else words.data_ptr(),
        full_mask=None if mask is None else mask.data_ptr(),
        partial=partial.data_ptr(),
        partial_lse=lse.data_ptr(),
        out=out.data_ptr(),
        cache_stride=problem.cache.stride(0) * 2,
        draft_stride=problem.draft_keys.stride(0) * 2,
        requests=problem.requests,
        heads=problem.heads,
        teams=teams,
        blocks=blocks,
        min_tiles=MIN_TILES,
        groups=merge_groups(teams, problem.requests),
        mask=MASKS["ancestors" if words is not None else "causal" if mask is None else "full"],
        wide_query_indptr=problem.query_indptr.dtype == torch.int64,
        wide_cache_indptr=problem.cache_indptr.dtype == torch.int64,
        wide_cache_indices=problem.cache_indices.dtype == torch.int64,
        wide_mask_indptr=starts is not None and starts.dtype == torch.int64,
        scale=scale,
        cap=cap,
        cap_inner=2 * scale / problem.logit_cap if cap else 0.0,
    )
