"""Every configuration's cache, layer by layer, against vLLM's own KV-cache specifications (0.32.0)."""

import json
from collections import Counter

import msgspec
import pytest

from draftmark.configuration import Configuration
from draftmark.planner.layout import stages
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
