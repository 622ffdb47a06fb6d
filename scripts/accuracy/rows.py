"""What is compared: models, and predictions beside measurements."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import read_model
from draftmark.model import Gqa, Mla, Model, Recurrent, WeightGroup
from draftmark.planner import Plan
from draftmark.units import GIB, Bytes

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction beside what was measured."""

    name: str
    family: str
    real: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """In GiB."""
        return (self.predicted - self.real) / GIB

    @property
    def share(self) -> float:
        """Relative."""
        return self.predicted / self.real - 1


def family(model: Model) -> str:
    """Dense, or what makes a model special."""
    kinds = {type(layer.mixer) for layer in model.layers}
    windowed = any(isinstance(layer.mixer, Gqa) and layer.mixer.window for layer in model.layers)
    if Recurrent in kinds:
        return "recurrent hybrid"
    if Mla in kinds:
        sparse = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
        return "sparse MLA" if sparse else "MLA"
    if windowed:
        return "windowed hybrid"
    if model.selects_blocks:
        return "sparse heads"
    return "MoE" if model.experts is not None else "dense"


def configs() -> dict[str, dict[str, Any]]:
    """All real configurations by name."""
    found = {}
    for path in (DATA / "starts" / "models.jsonl", DATA / "models" / "configs.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["name"]] = row
    return found


def read(row: dict[str, Any]) -> Model:
    """The model of one configuration."""
    files = Files(place=row["name"], name=row["name"], config=row["config"], quantization=row.get("quantization"))
    return read_model(files)


def base(name: str) -> str:
    """A model without its maker and its quantization, so that all its rows are left out together."""
    short = name.split("/")[-1].lower().removeprefix("meta-")
    return re.sub(r"-(instruct|chat|it|quantized.*|fp8-dynamic|hf|v0\.1|\d{4})(?=-|$|\.)", "", short)


def with_weights(model: Model, gib: float, ranks: int) -> Model:
    """The model with so many GiB of weights on each rank, as the start itself said."""
    size = round(gib * GIB * ranks)
    whole = WeightGroup(role="mlp", layer=0, bytes=Bytes(size), parameters=size, dtype="U8")
    return msgspec.structs.replace(model, weights=(whole,), exact_weights=True)


def pool_row(name: str, model: Model, found: Plan, real: int) -> Row:
    """Pool bytes, at the bytes a token of the plan."""
    per = found.bytes_per_token
    low, high = found.pool.low or 0, found.pool.high or 0
    return Row(
        name=name,
        family=family(model),
        real=real * per,
        predicted=found.pool.tokens * per,
        low=low * per,
        high=high * per,
    )
