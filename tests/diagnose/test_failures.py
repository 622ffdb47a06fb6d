"""Public failures, row by row: the right class where the cause shows, the right direction, nothing confidently wrong.

The rows were annotated (tests/data/README.md) before the rules were written.
"""

import io
import json
from pathlib import Path
from typing import Any, Final

import pytest

from draftmark.configuration import Configuration, EngineName
from draftmark.diagnose import Diagnosis, diagnose
from draftmark.diagnose.knobs import FLAGS
from draftmark.engines import known
from draftmark.errors import BadInput

DATA = Path(__file__).parents[1] / "data" / "failures.jsonl"
ROWS: Final[list[dict[str, Any]]] = [json.loads(line) for line in DATA.read_text().splitlines()]
SHOWN = [row for row in ROWS if row["shows_cause"]]
HIDDEN = [row for row in ROWS if not row["shows_cause"]]

KNOBS: Final = {
    "other processes on the GPU": "others",
    "other processes on the GPUs": "others",
    "GPUs": "gpus",
    "MAX_JOBS": "build jobs",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable segments",
    "patience (--timeout)": "patience",
    "--hicache-ratio or --hicache-size": "host cache",
    "--limit-mm-per-prompt": "multimodal items",
    "--swa-full-tokens-ratio": "window share",
    "--shm-size of the container, or free /dev/shm": "shared memory",
    "host memory (or the container's limit)": "host memory",
    "the pool": "pool",
}
"""Flags that no engine's table has, by the annotation's knobs."""


def knob(flag: str) -> str | None:
    by_engine = {name: key for flags in FLAGS.values() for key, name in flags.items()}
    return KNOBS.get(flag) or by_engine.get(flag)


def asked(row: dict[str, Any]) -> Configuration | None:
    """The row's flags as a configuration, as far as they are real flags."""
    name = row["engine"].split()[0].split("-")[0]
    if name not in {"sglang", "vllm"}:
        return None
    engine: EngineName = "sglang" if name == "sglang" else "vllm"
    flags = row["flags"] if isinstance(row["flags"], list) else []
    argv = tuple(word for flag in flags if flag.startswith("--") for word in flag.split())
    try:
        return known.adapter(engine).parse_command(argv, ()).configuration
    except BadInput:  # flags told in words, like `--max-num-seqs 69 (fails)`
        return Configuration(engine=engine, model="")


def diagnosed(row: dict[str, Any]) -> Diagnosis:
    return diagnose(io.BytesIO(row["excerpt"].encode()), row["id"], asked(row))


@pytest.mark.parametrize("row", SHOWN, ids=[row["id"] for row in SHOWN])
def test_the_class_where_the_cause_shows(row: dict[str, Any]) -> None:
    findings = diagnosed(row).findings
    assert findings, "nothing was found"
    assert findings[0].code == row["class"]
    lines = row["excerpt"].split("\n")
    for finding in findings:
        assert finding.evidence, finding.code
        for seen in finding.evidence:
            assert seen.source.line is not None
            assert seen.source.text in lines[seen.source.line - 1]


@pytest.mark.parametrize("row", SHOWN, ids=[row["id"] for row in SHOWN])
def test_the_direction_of_its_remedies(row: dict[str, Any]) -> None:
    expected: dict[str, str] = row["direction"]
    first = diagnosed(row).findings[0]
    moved = {
        name: change.direction
        for remedy in first.remedies
        for change in remedy.changes
        if (name := knob(change.flag)) in expected and name is not None
    }
    assert moved.items() <= expected.items()
    assert moved or not expected


@pytest.mark.parametrize("row", HIDDEN, ids=[row["id"] for row in HIDDEN])
def test_no_confident_wrong_answer_where_it_does_not(row: dict[str, Any]) -> None:
    for finding in diagnosed(row).findings:
        assert finding.confidence != "certain" or finding.code == row["class"]


def test_the_rows_are_enough_to_mean_something() -> None:
    assert len(SHOWN) >= 40
    assert sum(bool(row["direction"]) for row in SHOWN) >= 38
    assert len({row["class"] for row in SHOWN}) >= 20
