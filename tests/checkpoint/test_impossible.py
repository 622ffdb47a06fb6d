"""A config.json that cannot be: every impossible value is refused by the field's name, and nothing else is raised."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import load_model, read_model
from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import plan
from tests.zoo import rows

NAMES = (
    "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "Qwen/Qwen3.5-27B",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "MiniMaxAI/MiniMax-M3", "zai-org/GLM-5",
)  # fmt: skip
SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(-(10**40), 10**40), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.integers(-3, 3), st.text(max_size=3), st.none(), st.lists(st.none())), max_size=5),
    st.dictionaries(st.sampled_from(["type", "factor", "num_bits", "weights", "rope_type"]), st.integers(-2, 9)),
)  # fmt: skip


def read(config: dict[str, Any], quantization: dict[str, Any] | None = None) -> Model:
    return read_model(Files(place="config.json", name="m", config=config, quantization=quantization))


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [0, -1, -64, 1.5, "8", True, [8], {"a": 8}, 10**30])
def test_a_size_that_cannot_be_is_refused_by_name(field: str, value: object) -> None:
    config = {**rows()["Qwen/Qwen3-8B"]["config"], field: value}
    with pytest.raises(BadInput, match=f"'{field}' is") as caught:
        read(config)
    assert caught.value.place == "config.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 5}, "32 heads do not divide by 5 KV heads"),
        ({"num_key_value_heads": 64}, "32 heads do not divide by 64 KV heads"),
        ({"head_dim": None, "hidden_size": 4100}, "4100 does not divide by 32 heads"),
        ({"num_hidden_layers": 5000}, "beyond any model that was published"),
        ({"torch_dtype": 16}, "'torch_dtype' is 16, not a text"),
        ({"layer_types": "full"}, "'layer_types' is 'full', not a list"),
        ({"layer_types": ["full_attention"]}, "'layer_types' has 1 items for 36 layers"),
        ({"rope_scaling": "yarn"}, "'rope_scaling' is 'yarn', not an object"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": -4.0}}, "'factor' is -4.0, not a positive number"),
        ({"architectures": "Qwen3ForCausalLM"}, "'architectures' is 'Qwen3ForCausalLM', not a list"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' is 'no', neither true nor false"),
        ({"quantization_config": "fp8"}, "'quantization_config' is 'fp8', not an object"),
        ({"rope_scaling": {"type": "odd", "factor": 4.0}}, "unknown kind of rotary positions 'odd'"),
        ({"text_config": 3}, "'text_config' is 3, not an object"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}, "not two positive sizes"),
        ({"quantization_config": {"quant_method": "awq", "bits": 0}}, "'bits' is 0, less than 1"),
    ],
)
def test_other_values_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read({**rows()["Qwen/Qwen3-8B"]["config"], **changes})
    assert message in str(caught.value)


def test_rotary_positions_under_their_newer_name_lengthen_the_context_too() -> None:
    config = dict(rows()["Qwen/Qwen3-8B"]["config"])
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert read({**config, "rope_scaling": None, "rope_parameters": scaled}).context == 131_072
    assert read({**config, "rope_scaling": scaled}).context == 131_072


@st.composite
def broken(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A real config with up to three of its fields, nested ones too, replaced or left out."""
    row = rows()[draw(st.sampled_from(NAMES))]
    config = copy.deepcopy(row["config"])
    quantization = copy.deepcopy(row.get("quantization"))
    objects = [config, *([quantization] if quantization else [])]
    for one in objects:
        objects += [value for value in one.values() if isinstance(value, dict) and value]
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from(objects))
        field = draw(st.sampled_from(sorted(where, key=str))) if where else "new"
        if draw(st.booleans()):
            where[field] = draw(ODD)
        else:
            where.pop(field, None)
    return config, quantization


@pytest.mark.slow
@given(what=broken(), engine=st.sampled_from(("sglang", "vllm")), ranks=st.sampled_from((1, 2, 8)))
@settings(max_examples=150, deadline=None)
def test_any_change_to_a_config_is_planned_or_refused(
    what: tuple[dict[str, Any], dict[str, Any] | None], engine: EngineName, ranks: int
) -> None:
    try:
        model = read(*what)
        wanted = Configuration(engine=engine, model="m", parallel=Parallel(tensor=ranks))
        found = plan(model, wanted, parse_machine("h200:8"))
    except BadInput:
        return
    assert found.pool.tokens >= 0
    assert found.bytes_per_token >= 0
    assert all(0 <= risk.probability <= 1 for risk in found.risks)
    assert all(group.bytes >= 0 for group in model.weights)


def test_a_model_that_keeps_nothing_a_token_is_refused_for_sglang() -> None:
    config = copy.deepcopy(rows()["Qwen/Qwen3.5-27B"]["config"])
    config["text_config"]["layer_types"] = ["linear_attention"] * config["text_config"]["num_hidden_layers"]
    with pytest.raises(BadInput, match="no layer keeps anything a token"):
        plan(read(config), Configuration(engine="sglang", model="m"), parse_machine("h200"))
    found = plan(read(config), Configuration(engine="vllm", model="m"), parse_machine("h200"))
    assert found.pool.blocks


def test_json_nested_beyond_reading_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(BadInput, match="not JSON"):
        load_model(str(path))
