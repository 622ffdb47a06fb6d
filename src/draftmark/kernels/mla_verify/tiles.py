"""Tile shapes of the portable kernel for each architecture, with the reason for each choice.

Compiling says what a shape takes; `draftmark kernel check` does that for all of them and fails on a block that asks for
too much shared memory, and on spills.
"""

from dataclasses import dataclass
from typing import Final

from draftmark.kernels.mla_verify.problem import need

KIB: Final = 1024
SHARED_LIMIT: Final = {80: 163 * KIB, 86: 99 * KIB, 89: 99 * KIB, 90: 227 * KIB, 100: 227 * KIB, 120: 99 * KIB}
"""Bytes of shared memory that one block may have (CUDA C++ programming guide, table of compute capabilities)."""

FAMILY: Final = {87: 80, 103: 100, 121: 120}
"""Architectures that take the tiles of another: a sibling with the same limits or more."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """`rows` (nodes x heads) by `tokens`; `up_to` is the most rows of a request that it is chosen for (None: any)."""

    rows: int
    tokens: int
    warps: int
    stages: int
    up_to: int | None
    reason: str


def _few(reason: str, tokens: int = 64) -> Tile:
    return Tile(rows=16, tokens=tokens, warps=8, stages=2, up_to=16, reason=reason)


_BYTES_IN_FLIGHT = "memory-bound: the most tokens in flight that fit without spills (4 warps spill at 64 tokens)"
_FP8_FEW = "64 tokens spill while fp8 is decoded"
_FP8_MANY = "32 rows by 32 tokens spill while fp8 is decoded"
_SM_120 = "64 rows by 16 tokens just fit but spill with Triton 3.9; 32 rows read L2 twice as often, which it can feed"
_SMALL_SHARED = "64 rows spill, 64 tokens ask for 114,688 bytes, which a block has not"

BF16: Final[dict[int, tuple[Tile, ...]]] = {
    80: (
        _few(_BYTES_IN_FLIGHT),
        Tile(
            rows=32, tokens=32, warps=8, stages=2, up_to=None, reason="64 rows spill; so do 64 tokens with Triton 3.9"
        ),
    ),
    86: (
        _few(_BYTES_IN_FLIGHT),
        Tile(rows=32, tokens=32, warps=8, stages=2, up_to=None, reason=_SMALL_SHARED),
    ),
    89: (
        _few(_BYTES_IN_FLIGHT),
        Tile(rows=32, tokens=32, warps=8, stages=2, up_to=None, reason=_SMALL_SHARED),
    ),
    90: (
        _few(_BYTES_IN_FLIGHT),
        Tile(
            rows=32, tokens=64, warps=8, stages=2, up_to=32, reason="no wgmma below 64 rows; 64 tokens fit, no spills"
        ),
        Tile(
            rows=64,
            tokens=64,
            warps=8,
            stages=2,
            up_to=None,
            reason="wgmma; spills, and is the fastest all the same: 182 us against 305 (32x64) and 378 (64x16)",
        ),
    ),
    100: (
        _few(_BYTES_IN_FLIGHT),
        Tile(
            rows=32, tokens=64, warps=8, stages=2, up_to=None, reason="64 rows go through tensor memory and spill 1 KB"
        ),
    ),
    120: (
        _few(_BYTES_IN_FLIGHT),
        Tile(rows=32, tokens=32, warps=8, stages=2, up_to=None, reason=_SM_120),
    ),
}

FP8: Final[dict[int, tuple[Tile, ...]]] = {
    80: (Tile(rows=16, tokens=32, warps=8, stages=2, up_to=None, reason="32 rows spill while fp8 is decoded"),),
    86: (
        _few(_FP8_FEW, tokens=32),
        Tile(rows=32, tokens=32, warps=8, stages=2, up_to=None, reason=_SMALL_SHARED),
    ),
    89: (
        _few(_FP8_FEW, tokens=32),
        Tile(rows=32, tokens=32, warps=8, stages=2, up_to=None, reason=_SMALL_SHARED),
    ),
    90: (
        _few(_FP8_FEW, tokens=32),
        Tile(rows=32, tokens=16, warps=8, stages=2, up_to=None, reason=_FP8_MANY),
    ),
    100: (
        _few(_FP8_FEW, tokens=32),
        Tile(rows=32, tokens=16, warps=8, stages=2, up_to=None, reason=_FP8_MANY),
    ),
    120: (
        _few(_FP8_FEW, tokens=32),
        Tile(rows=32, tokens=16, warps=8, stages=2, up_to=None, reason=_FP8_MANY),
    ),
}

LEAST_REQUESTS: Final = 16
"""Requests that the kernels are compiled for, at least: what the check compiles is what small batches run, and with
fewer ptxas spills on sm_86, sm_89 and sm_100."""
WARPS: Final = 8
"""Warps of every tile: with 4 the accumulator spills."""
DRAFT_TOKENS: Final = 16
"""Draft nodes a tile of the drafts' own kernel: a tree has 65 at most, so this is all about registers."""


def choose(rows: int, *, fp8: bool, architecture: int) -> Tile:
    """The tile for requests of up to `rows` rows on `architecture` (90 for sm_90).

    Raises:
        ValueError: the architecture has no table.
    """
    table = FP8 if fp8 else BF16
    known = FAMILY.get(architecture, architecture)
    need(known in table, "architecture", f"sm_{architecture}", f"one of {sorted(table)}")
    return next(tile for tile in table[known] if tile.up_to is None or rows <= tile.up_to)


def most_rows(architecture: int) -> int:
    """The most rows that a tile of this architecture has."""
    return max(tile.rows for table in (BF16, FP8) for tile in table[architecture])
