"""Compile every kernel for every architecture, without a GPU, and hold what it takes against the limits."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

from draftmark.kernels.mla_verify import compiled, hopper, tiles

Row = dict[str, Any]
Job = tuple[Callable[..., Row], tuple[Any, ...]]

SPILLS_ALLOWED: Final = {90}
"""Architectures where the speed is measured, so that spills may stay where the measurement says they pay."""


def check() -> Iterator[Row]:
    """One row a configuration, in order; `fault` says what is wrong with it, None where nothing is."""
    tasks = jobs()
    with ProcessPoolExecutor(max_workers=min(len(tasks), os.cpu_count() or 1)) as pool:
        yield from pool.map(run, tasks)


def jobs() -> list[Job]:
    """Everything there is to compile: functions of this module and what to call them with."""
    attends = [
        (portable_row, (architecture, tile, fp8))
        for fp8, table in ((False, tiles.BF16), (True, tiles.FP8))
        for architecture, choices in table.items()
        for tile in choices
    ]
    others: list[Job] = []
    for architecture in tiles.BF16:
        others += [(drafts_row, (architecture, tiles.most_rows(architecture))), (merge_row, (architecture,))]
    return [(hopper_row, ()), *attends, *others]


def run(job: Job) -> Row:
    """Compile one."""
    function, arguments = job
    return function(*arguments)


def portable_row(architecture: int, tile: tiles.Tile, fp8: bool) -> Row:
    """The main kernel with one tile."""
    used = compiled.compile_attend(architecture, tile, fp8)
    shape = f"{tile.rows}x{tile.tokens}, {tile.warps} warps, {tile.stages} stages"
    return row("attend", architecture, "fp8" if fp8 else "bf16", shape, used, tile.reason)


def drafts_row(architecture: int, rows: int) -> Row:
    """The kernel of the draft's own nodes, with the most rows that any tile of the architecture has."""
    used = compiled.compile_drafts(architecture, rows, tiles.WARPS)
    shape = f"{rows}x{tiles.DRAFT_TOKENS}, {tiles.WARPS} warps, 2 stages"
    return row("attend_drafts", architecture, "bf16", shape, used, "")


def merge_row(architecture: int) -> Row:
    """The sum of the parts."""
    return row(
        "merge", architecture, "fp32", "16 parts x 128 columns, 4 warps", compiled.compile_merge(architecture), ""
    )


def hopper_row() -> Row:
    """The CUDA kernel for sm_90a, compiled by NVRTC; a fault where NVRTC is missing or refuses the source."""
    try:
        cubin, _ = hopper.compile_cubin()
    except (ImportError, RuntimeError) as reason:
        # cuda-bindings says with a RuntimeError that it finds no NVRTC library: PyTorch's CPU wheels bring none.
        cause = str(reason).partition("\n")[0]
        missing = {"fault": f"not compiled: {cause} (NVRTC is in pip install cuda-bindings nvidia-cuda-nvrtc)"}
        return {"kernel": "hopper", "architecture": 90, "cache": "bf16", "tile": "64x64", "reason": "", **missing}
    used = compiled.read_usage(cubin, "attend", hopper.SHARED)
    return row("hopper", 90, "bf16", "64x64, 12 warps, 2 stages", used, "wgmma written out, see hopper_attend.cu")


def row(kernel: str, architecture: int, cache: str, tile: str, used: compiled.Usage, reason: str) -> Row:
    """One configuration's row, with the limit and the verdict."""
    limit = tiles.SHARED_LIMIT[architecture]
    return {
        "kernel": kernel,
        "architecture": architecture,
        "cache": cache,
        "tile": tile,
        "reason": reason,
        **dataclasses.asdict(used),
        "shared_limit": limit,
        "fault": fault(architecture, used, limit),
    }


def fault(architecture: int, used: compiled.Usage, limit: int) -> str | None:
    """What is wrong with a configuration; None where nothing is."""
    if used.shared > limit:
        return f"{used.shared} bytes of shared memory, {used.shared - limit} more than a block has"
    if used.stack and architecture not in SPILLS_ALLOWED:
        return f"{used.stack} bytes of spills"
    return None
