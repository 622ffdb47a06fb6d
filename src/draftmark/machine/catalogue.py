"""The GPUs that Draftmark knows: data/gpus.toml, each row with its sources."""

import difflib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Final

from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.units import GIB, MIB, Bytes, BytesPerSecond, Flops

_ADD: Final = "add it to data/gpus.toml, whose head says which facts a row needs"
_SIZE: Final = re.compile(r"[ -]\d+gb$", re.IGNORECASE)
_ECC: Final = 0.08
"""ECC, where it is switched on, takes a sixteenth of a board's GDDR: an RTX 5880 Ada has 46068 MiB instead of 49140."""


@cache
def catalogue() -> dict[str, Device]:
    """Every known GPU by each of its names and aliases, in the form that `plain` gives."""
    return {plain(name): device for name, device in _named()}


@cache
def sizes() -> dict[str, tuple[Device, ...]]:
    """The known GPUs by name without a memory size: drivers call an RTX 4060 Ti the same with 8 and with 16 GB."""
    found: dict[str, tuple[Device, ...]] = {}
    for name, device in _named():
        others = found.get(plain(_SIZE.sub("", name)), ())
        if device not in others:
            found[plain(_SIZE.sub("", name))] = (*others, device)
    return found


def reported(name: str, board: Bytes) -> Device | None:
    """The GPU that a driver calls `name` and says to have `board` bytes.

    None where no GPU of that name is known with about that much.
    """
    alike = sizes().get(plain(_SIZE.sub("", name)), ())
    apart = {device: abs((device.board_memory or board) - board) for device in alike}
    nearest = min(apart, key=lambda device: apart[device], default=None)
    return nearest if nearest is not None and apart[nearest] < _ECC * board else None


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
    alike = sizes().get(plain(name), ())
    if alike:
        names = " or ".join(repr(each.name) for each in alike)
        raise BadInput(f"{name!r} is sold with different memories", place="--gpu", remedy=f"say which: {names}")
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


def _named() -> Iterator[tuple[str, Device]]:
    rows = tomllib.loads(files("draftmark").joinpath("data/gpus.toml").read_text(encoding="utf-8"))["gpu"]
    for row in rows:
        device = _device(row)
        for name in (row["name"], *row["aliases"]):
            yield name, device


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
