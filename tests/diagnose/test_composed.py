"""Whole logs composed of real starts and of what the engines' own sources say: each has its class and its direction.

tests/data/README.md tells how they were made.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.diagnose.logs import moves, of

DATA = Path(__file__).parents[1] / "data"
ROWS: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in (DATA / "composed-logs.jsonl").read_text(encoding="utf-8").splitlines()
]


def start(name: str) -> list[str]:
    if name != "sglang":
        return (DATA / "logs" / "composed" / f"{name}.log").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, (DATA / "sglang-starts" / "starts.jsonl").read_text().splitlines())
    log = next(row["log"] for row in rows if row["name"] == "llama-3_1-8b")
    return log if isinstance(log, list) else list(log.split("\n"))


def interleaved(lines: list[str], ranks: int) -> list[str]:
    """Every line with a time, said by each rank in turn; the first ones are of the one process before them."""
    stamped = [line.startswith("[20") and line[20:21] == "]" and "server_args=" not in line for line in lines]
    return [
        f"{line[:20]} TP{rank}{line[20:]}" if by_rank else line
        for line, by_rank in zip(lines, stamped, strict=True)
        for rank in (range(ranks) if by_rank else (0,))
    ]


def composed(row: dict[str, Any]) -> str:
    text = ""
    for piece in row["pieces"]:
        lines = start(piece["start"])[: piece["lines"]] if "start" in piece else []
        if "ranks" in row:
            lines = interleaved(lines, row["ranks"])
        begun = "".join(f"{line}\n" for line in lines)
        for before, after in piece.get("replace", {}).items():
            begun = begun.replace(before, after)
        text += begun + piece["then"]
    return "\n".join(f"\x1b[36m{line}\x1b[0m" for line in text.split("\n")) if row.get("colour") else text


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_class_and_direction(row: dict[str, Any]) -> None:
    findings = of(composed(row)).findings
    if row["code"] is None:
        assert findings == ()
        return
    first = findings[0]
    assert first.code == row["code"]
    assert first.severity == row.get("severity", first.severity)
    assert row.get("says", "") in first.claim
    moved = {flag: direction for flag, (direction, _) in moves(first).items()}
    assert row.get("moves", {}).items() <= moved.items()
    assert moved.get(row.get("not_moved", ""), "cannot help") == "cannot help"


def test_the_rows_cover_much() -> None:
    assert len(ROWS) >= 60
    assert len({row["code"] for row in ROWS}) >= 28
    assert sum("moves" in row for row in ROWS) >= 35
