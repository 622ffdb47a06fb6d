"""Run the kernels on a problem: choose one that fits, reserve its workspace, launch on the current stream."""

import contextlib
import os
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import torch
import triton

from draftmark.kernels.mla_verify import hopper, portable, schedule, tiles
from draftmark.kernels.mla_verify.problem import Problem, check_ranges, need

Choice = Literal["hopper", "portable"]

INTERPRETED: Final = os.environ.get("TRITON_INTERPRET") == "1"
LEAST_WIDTH: Final = 16
"""Elements that a matrix product of Triton sums over, at least."""
MOST_WIDTHS: Final = (512, 64)
"""Latent and rotary elements: the tiles fill registers and shared memory with these."""
MIN_TILES: Final = 2
"""Fewest tiles that a team takes, so that a short context is not cut into more parts than it is worth."""


@dataclass(kw_only=True)
class Workspace:
    """Room for partial results, kept between calls; for one stream at a time. It grows outside graph capture only.

    Another device gets room of its own, in place of what was there.
    """

    partial: torch.Tensor | None = None
    lse: torch.Tensor | None = None
    outgrown: list[torch.Tensor] = field(default_factory=list)
    """Earlier, smaller buffers: captured graphs may hold their addresses."""

    def reserve(self, numbers: int, rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for `numbers` float32 numbers of partial outputs, and for `rows` log-sum-exps.

        Raises:
            ValueError: more room is needed while a graph is being captured.
        """
        partial, lse = self.partial, self.lse
        if (
            partial is None
            or lse is None
            or partial.device != device
            or partial.numel() < numbers
            or lse.numel() < rows
        ):
            capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            need(not capturing, "workspace", "too small during capture", f"reserved for {numbers} numbers before")
            self.outgrown += [tensor for tensor in (self.partial, self.lse) if tensor is not None]
            partial = self.partial = torch.empty(numbers, dtype=torch.float32, device=device)
            lse = self.lse = torch.empty(rows, dtype=torch.float32, device=device)
        return partial, lse


def mla_verify(
    problem: Problem,
    *,
    out: torch.Tensor | None = None,
    workspace: Workspace | None = None,
    kernel: Choice | None = None,
    tile: tiles.Tile | None = None,
) -> torch.Tensor:
    """Attention of all draft nodes, [nodes, heads, latent] in the query's type; a row that sees nothing is 0.

    Nothing is read back by the host, so it may be captured in a CUDA graph; lengths may change between replays.
    `kernel` and `tile` override what is chosen for the device. Offsets and indices are checked on the CPU only:
    on a GPU `check_ranges` does it where they may be wrong.

    Raises:
        ValueError: an argument is not what it must be, or the kernel asked for cannot serve the problem.
    """
    need(kernel is None or kernel in get_args(Choice), "kernel", kernel, f"one of {', '.join(get_args(Choice))}")
    device = problem.query.device
    known = device.type == "cuda" or (INTERPRETED and device.type == "cpu")
    need(known, "query", f"on {device}", "on a CUDA device")
    wanted = (*problem.query.shape[:2], problem.latent)
    if out is None:
        out = torch.empty(wanted, dtype=problem.query.dtype, device=device)
    need(tuple(out.shape) == wanted and out.is_contiguous(), "out", tuple(out.shape), f"contiguous {wanted}")
    need(out.dtype == problem.query.dtype, "out", out.dtype, str(problem.query.dtype))
    need(out.device == device, "out", f"on {out.device}", f"on {device}")
    if kernel == "hopper":
        reason = hopper_refusal(problem)
        need(reason is None, "kernel", "hopper", f"another one: {reason}")
    if device.type == "cpu":
        check_ranges(problem)
    workspace = workspace or Workspace()
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        if (kernel or choose(problem)) == "hopper":
            hopper.launch(problem, out, workspace.reserve)
        else:
            launch_portable(problem, out, workspace, tile or portable_tile(problem))
    return out


def portable_tile(problem: Problem) -> tiles.Tile:
    """The portable kernel's tile for this problem on its device."""
    fp8 = problem.cache.dtype == torch.float8_e4m3fn
    rows = problem.max_nodes * problem.heads
    return tiles.choose(rows, fp8=fp8, architecture=architecture_of(problem.query.device))


def choose(problem: Problem) -> Choice:
    """The Hopper kernel where it fits, the portable one elsewhere."""
    return "hopper" if hopper_refusal(problem) is None and hopper.obstacle() is None else "portable"


def hopper_refusal(problem: Problem) -> str | None:
    """Why the Hopper kernel cannot serve the problem on its device; None where it can."""
    if (reason := hopper.refusal(problem)) is not None:
        return reason
    if INTERPRETED:
        return "Triton interprets here"
    architecture = architecture_of(problem.query.device)
    return None if architecture == 90 else f"it runs on sm_90 only, not on sm_{architecture}"


def architecture_of(device: torch.device) -> int:
    """Compute capability as one number: 90 for sm_90. The interpreter takes the smallest tiles, those of sm_120."""
    if device.type != "cuda":
        return 120
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors; the interpreter counts a few, so that tests see parts."""
    if device.type != "cuda":
        return 6
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def launch_portable(problem: Problem, out: torch.Tensor, workspace: Workspace, tile: tiles.Tile) -> None:
    """Three launches: the drafts' own parts, the committed tokens' parts, and their sum.

    Raises:
        ValueError: the latent or the rotary part is not of a width that the tiles were chosen for.
    """
    least, latent_most, rope_most = LEAST_WIDTH, *MOST_WIDTHS
    rope = problem.width - problem.latent
    need(least <= problem.latent <= latent_most, "latent", problem.latent, f"{least} to {latent_most}")
    need(least <= rope <= rope_most, "query", f"of {rope} rotary elements", f"of {least} to {rope_most}")
    heads, requests, latent = problem.heads, problem.requests, problem.latent
    blocks = schedule.row_blocks(problem.max_nodes, heads, tile.rows)
    teams = schedule.teams_for(multiprocessors(out.device), blocks)
    rows = (teams + 2 * requests) * blocks * tile.rows
    partial, lse = workspace.reserve(rows * latent, rows, out.device)
    fp8 = problem.cache.dtype == torch.float8_e4m3fn
    words, mask = problem.ancestors, problem.full_mask
    masking = "ancestors" if words is not None else "causal" if mask is None else "full"
    lengths = problem.cache_lengths
    nothing = problem.query_indptr
    common = {"LATENT": latent, "M": tile.rows, "HAS_LENGTHS": lengths is not None}
    tiled = {"ROPE": rope, "HAS_CAP": problem.logit_cap > 0}
    block_requests = max(tiles.LEAST_REQUESTS, triton.next_power_of_2(requests))
    portable.attend_drafts[(blocks, requests)](
        problem.query, problem.draft_keys, problem.query_indptr, problem.cache_indptr,
        nothing if lengths is None else lengths, nothing if words is None else words,
        nothing if mask is None else mask.view(torch.uint8),
        nothing if problem.mask_indptr is None else problem.mask_indptr, partial, lse, requests, heads, teams,
        problem.draft_keys.stride(0), problem.scale, problem.logit_cap,
        N=tiles.DRAFT_TOKENS, MASK=masking, num_warps=tile.warps, num_stages=2, **common, **tiled,
    )  # fmt: skip
    portable.attend[(blocks, teams)](
        problem.query, problem.cache.view(torch.uint8) if fp8 else problem.cache, problem.query_indptr,
        problem.cache_indptr, problem.cache_indices, nothing if lengths is None else lengths, partial, lse, requests,
        heads, problem.cache.stride(0), problem.scale, problem.logit_cap, problem.key_scale, problem.value_scale,
        MIN_TILES, N=tile.tokens, BLOCK_REQUESTS=block_requests, PAGE=problem.page_size, FP8=fp8,
        num_warps=tile.warps, num_stages=tile.stages, **common, **tiled,
    )  # fmt: skip
    each = 1 if requests * blocks <= 16 else 8
    columns = min(128, latent)
    portable.merge[(requests * blocks * (tile.rows // each), latent // columns)](
        problem.query_indptr, problem.cache_indptr, nothing if lengths is None else lengths, out, partial, lse,
        requests, heads, blocks, teams, MIN_TILES, N=tile.tokens, BLOCK_REQUESTS=block_requests,
        BLOCK_TEAMS=triton.next_power_of_2(teams), COLUMNS=columns, PARTS=min(16, triton.next_power_of_2(teams)),
        ROWS=each, num_warps=4, **common,
    )  # fmt: skip
