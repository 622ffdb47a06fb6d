"""Every configuration's cache against the engines' own code.

Layer by layer against vLLM's KV-cache specifications (0.32.0), a token altogether against SGLang's configurator.
"""

import json
from collections import Counter

import msgspec
import pytest

from draftmark.configuration import Configuration, Parallel
from draftmark.planner.layout import stages
from draftmark.planner.sglang.cells import cells
from draftmark.planner.sglang.rules import rules_for
from draftmark.planner.vllm.specs import specifications
from tests.zoo import DATA, zoo_model

LINES = (DATA / "models" / "vllm-0.32-specs.jsonl").read_text().splitlines()
KEY = {row["name"]: row["layers"] for row in map(json.loads, LINES) if "layers" in row}


def test_the_key_covers_most_configurations() -> None:
    assert len(LINES) == 89
    assert len(KEY) >= 82


@pytest.mark.parametrize("name", KEY)
def test_layers_take_what_vllm_says(name: str) -> None:
    model = msgspec.structs.replace(zoo_model(name), kv_dtype=None)
    wanted = Configuration(engine="vllm", model=name, dtype="bfloat16", kv_dtype="bfloat16")
    specs = specifications(model, wanted, stages(len(model.layers), 1)[0], None)
    ours = Counter((spec.token or spec.state, spec.width) for spec in specs)
    theirs: Counter[tuple[int, int | None]] = Counter()
    for layer in KEY[name]:
        state = layer["spec"] == "MambaSpec"
        theirs[layer["page_bytes"] // (1 if state else layer["block"]), layer["window"]] += layer["count"]
    assert ours == theirs


CELLS = {
    row["name"]: row["cells"]
    for row in map(json.loads, (DATA / "models" / "sglang-0.5.15-cells.jsonl").read_text().splitlines())
    if "cells" in row
}


def test_sglang_answered_for_most_configurations() -> None:
    assert len(CELLS) == 75


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("name", CELLS)
def test_a_token_takes_what_sglang_counts(name: str, ranks: int) -> None:
    model = msgspec.structs.replace(zoo_model(name), kv_dtype=None)
    wanted = Configuration(
        engine="sglang", model=name, dtype="bfloat16", kv_dtype="bfloat16", parallel=Parallel(tensor=ranks)
    )
    found = cells(model, wanted, stages(len(model.layers), 1)[0], rules_for("0.5.15.post1"), None)
    assert found.counted == pytest.approx(CELLS[name][str(ranks)], rel=1e-12)
