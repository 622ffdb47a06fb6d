"""Real configurations, for tests."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import read_model
from draftmark.model import Model

DATA = Path(__file__).parent / "data"


@cache
def rows() -> dict[str, dict[str, Any]]:
    """Every configuration, by the name of its repository."""
    lines = (DATA / "models" / "configs.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


@cache
def zoo_model(name: str) -> Model:
    """The model of one configuration."""
    row = rows()[name]
    return read_model(Files(place=name, name=name, config=row["config"], quantization=row.get("quantization")))
