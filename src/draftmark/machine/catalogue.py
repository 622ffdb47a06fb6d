"""The GPUs that Draftmark knows: data/gpus.toml, each row with its sources."""

import difflib
import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.units import GIB, MIB, Bytes, BytesPerSecond, Flops

_ADD: Final = "add it to data/gpus.toml, whose head says which facts a row needs"


@cache
def catalogue() -> dict[str, Device]:
    """Every known GPU by each of its names and aliases, in the form that `plain` gives."""
    rows = tomllib.loads(files("draftmark").joinpath("data/gpus.toml").read_text(encoding="utf-8"))["gpu"]
    return {plain(name): _device(row) for row in rows for name in (row["name"], *row["aliases"])}


def plain(name: str) -> str:
    """A name without case, maker, spaces and dashes, so that `RTX PRO 6000` and `rtx-pro-6000` are the same."""
    words = re.sub(r"nvidia|geforce|amd instinct", " ", name.lower())
    return re.sub(r"[^a-z0-9]", "", words)


def find_gpu(name: str) -> Device:
    """The GPU that people call `name`.

    Raises:
        BadInput: it is not in the catalogue; the remedy says how to add it.
    """
    device = catalogue().get(plain(name))
    if device is not None:
        return device
    near = difflib.get_close_matches(plain(name), catalogue(), n=1)
    hint = f"did you mean {catalogue()[near[0]].name!r}? Else " if near else ""
    raise BadInput(f"unknown GPU {name!r}", place="--gpu", remedy=f"{hint}{_ADD}")


def parse_machine(text: str) -> Machine:
    """`h200:8` is eight H200 in one host; without a number it is one.

    Raises:
        BadInput: the GPU is not known, or the number is not one.
    """
    name, _, count = text.partition(":")
    if count and not (count.isdigit() and int(count) > 0):
        raise BadInput(f"{count!r} is not a number of GPUs", place=f"--gpu {text}", remedy="write it like h200:8")
    if len(count) > 5:
        raise BadInput(f"{count} GPUs are beyond any cluster", place=f"--gpu {text}", remedy="write it like h200:8")
    return Machine(device=find_gpu(name), count=int(count or 1))


def _device(row: dict[str, Any]) -> Device:
    rate, board = row.get("matrix_tflops"), row.get("board_mib")
    return Device(
        name=row["name"],
        kind=row["kind"],
        memory=Bytes(round(row["memory_gib"] * GIB)),
        bandwidth=BytesPerSecond(row["bandwidth_gbs"] * 1e9),
        matrix_rate=None if rate is None else Flops(rate * 1e12),
        source=f"{row['source']}; memory: {row['memory_source']}",
        architecture=row["architecture"],
        nvlink=row.get("nvlink", False),
        board_memory=None if board is None else Bytes(board * MIB),
    )
