"""Whose file is it? Each format is tried; none is guessed."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from draftmark.errors import BadInput
from draftmark.sample import Point
from draftmark.sweep.imports import aiperf, bench_serving, guidellm, llama_bench

Reader = Callable[[bytes], tuple[str | None, tuple[Point, ...]] | None]

READERS: Final[dict[str, Reader]] = {
    "vllm or sglang bench serving": bench_serving.read,
    "guidellm": guidellm.read,
    "aiperf": aiperf.read,
    "llama-bench": llama_bench.read,
}


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What one file held."""

    tool: str
    model: str | None
    points: tuple[Point, ...]


def read_results(path: Path) -> tuple[Imported, ...]:
    """The points of a result file: one document, or (SGLang, AIPerf) one a line.

    Raises:
        BadInput: the file cannot be read, or is none of the formats known.
    """
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise BadInput(f"cannot be read: {problem.strerror}", place=str(path), remedy="name a result file") from None
    whole = _read(content)
    if whole is not None:
        return (whole,)
    lines = [_read(line) for line in content.splitlines() if line.strip()]
    found = [imported for imported in lines if imported is not None]
    if not found or len(found) < len(lines):
        raise BadInput(
            f"is no result file of {', '.join(READERS)}",
            place=str(path),
            remedy="save details: vllm --save-result --save-detailed, sglang --output-details, guidellm --output"
            " kind=json, aiperf's profile_export.jsonl, llama-bench -o json",
        )
    return tuple(found)


def _read(content: bytes) -> Imported | None:
    for tool, reader in READERS.items():
        found = reader(content)
        if found is not None:
            return Imported(tool=tool, model=found[0], points=found[1])
    return None
