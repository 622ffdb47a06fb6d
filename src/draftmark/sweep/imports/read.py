"""Whose file is it? Its fields tell; none is guessed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from draftmark.errors import BadInput, one_line
from draftmark.sample import Point
from draftmark.sweep.imports import aiperf, bench_serving, guidellm, llama_bench
from draftmark.sweep.imports.document import fields
from draftmark.sweep.imports.timed import Result


class Format(NamedTuple):
    """A tool's file: the fields that only it has, and how it is made to keep every request."""

    tool: str
    marks: frozenset[str]
    read: Callable[[Sequence[bytes]], tuple[Result, ...]]
    details: str


FORMATS: Final = (
    Format(
        "vllm or sglang bench serving",
        frozenset({"backend", "duration", "request_rate"}),
        bench_serving.read,
        "vllm --save-result --save-detailed, sglang --output-details",
    ),
    Format("guidellm", frozenset({"metadata", "benchmarks"}), guidellm.read, "guidellm --output kind=json"),
    Format("aiperf", frozenset({"metadata", "metrics"}), aiperf.read, "aiperf's profile_export.jsonl"),
    Format("llama-bench", frozenset({"n_prompt", "n_gen"}), llama_bench.read, "llama-bench -o json"),
)


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark of a file held."""

    tool: str
    model: str | None
    points: tuple[Point, ...]


def read_results(path: Path) -> tuple[Imported, ...]:
    """The points of a result file: one document, or one a line.

    Raises:
        BadInput: the file cannot be read, is none of the formats known, is not whole, or holds no request.
    """
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as problem:
        raise BadInput(f"cannot be read: {problem.strerror}", place=str(path), remedy="name a result file") from None
    documents = _documents(content, path)
    form = _format(documents, path)
    try:
        results = form.read(documents)
    except msgspec.DecodeError as problem:
        raise BadInput(
            f"looks like a file of {form.tool}, but {one_line(str(problem))}",
            place=str(path),
            remedy=f"save every request: {form.details}",
        ) from None
    found = tuple(Imported(tool=form.tool, model=one.model, points=one.points) for one in results if one.points)
    if not found:
        raise BadInput(f"is a file of {form.tool} without a request", place=str(path), remedy="name another")
    return found


def _documents(content: bytes, path: Path) -> list[bytes]:
    """The whole, or its lines."""
    lines = [line for line in content.splitlines() if line.strip()]
    try:
        fields(content)
    except msgspec.DecodeError as problem:
        if len(lines) < 2:
            raise _not_json(path, problem) from None
        return lines
    return [content]


def _format(documents: Sequence[bytes], path: Path) -> Format:
    """The one whose fields the documents have, all of them."""
    found: list[Format] = []
    for number, document in enumerate(documents, 1):
        try:
            names = fields(document)
        except msgspec.DecodeError as problem:
            if not found:
                raise _not_json(path, problem) from None
            raise BadInput(
                f"line {number} is not whole ({one_line(str(problem))})",
                place=str(path),
                remedy="take it out, or run the benchmark to its end",
            ) from None
        found += [form for form in FORMATS if form.marks <= names]
        if len(found) < number:
            raise _unknown(path)
    if len({form.tool for form in found}) > 1:
        raise BadInput("mixes files of several tools", place=str(path), remedy="name each by itself")
    return found[0]


def _not_json(path: Path, problem: Exception) -> BadInput:
    return BadInput(
        f"is not whole JSON ({one_line(str(problem))})",
        place=str(path),
        remedy="name a result file of a benchmark that ran to its end",
    )


def _unknown(path: Path) -> BadInput:
    return BadInput(
        f"is no result file of {', '.join(form.tool for form in FORMATS)}",
        place=str(path),
        remedy=f"save every request: {', '.join(form.details for form in FORMATS)}",
    )
