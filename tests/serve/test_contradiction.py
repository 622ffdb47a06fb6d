"""A log together with a model that is not its own."""

import json
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from draftmark.checkpoint.load import load_model
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import plan
from draftmark.serve.contradiction import contradictions, refuse_contradiction
from draftmark.serve.observe import Seen, look
from tests.serve.test_observe import QWEN, VLLM, sglang_log
from tests.zoo import DATA, rows, zoo_model

VERSION = "0.5.15.post1"
STARTS = [json.loads(line) for line in (DATA / "sglang-starts" / "starts.jsonl").read_text().splitlines()]
PLAIN = [
    start["name"]
    for start in STARTS
    if "--speculative-algorithm" not in start["flags_given"] and "max_total_num_tokens=" in start["log"]
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """The models of the starts, written down as they were started."""
    sys.path.insert(0, str(DATA.parents[1] / "scripts"))
    from sglang_starts import write_model

    folder = tmp_path_factory.mktemp("models")
    known = {name: row["config"] for name, row in rows().items()}
    asked = tomllib.loads((DATA / "sglang-starts" / "starts.toml").read_text())["models"]
    for name, model in asked.items():
        write_model(folder / name, model, known)
    return {name: load_model(str(folder / name)) for name in asked}


def found(seen: Seen, model: Model, version: str) -> list[str]:
    asked = msgspec.structs.replace(seen.asked.configuration, version=version)
    return list(contradictions(seen.observations, model, plan(model, asked, parse_machine("h200"))))


@pytest.mark.parametrize("name", PLAIN)
def test_a_real_log_fits_its_own_model_and_no_other(tmp_path: Path, models: dict[str, Model], name: str) -> None:
    own = next(start["model"] for start in STARTS if start["name"] == name)
    seen = look(sglang_log(name, tmp_path))
    assert found(seen, models[own], VERSION) == []
    others = [other for other in ("llama-3_1-8b", "qwen3-32b", "qwen3-0_6b", "qwen3-30b-a3b") if other != own]
    for other in others:
        assert found(seen, models[other], VERSION), other


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("Qwen/Qwen3-8B", "the log has 1.12 GiB of weights a rank, the model 15."),
        ("Qwen/Qwen3-32B", "of weights a rank"),
        ("meta-llama/Meta-Llama-3.1-8B", "of weights a rank"),
    ],
)
def test_vllms_log_beside_another_model(tmp_path: Path, other: str, message: str) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM)
    seen = look(path)
    assert found(seen, zoo_model(QWEN), "0.19.0") == []
    asked = msgspec.structs.replace(seen.asked.configuration, version="0.19.0")
    planned = plan(zoo_model(other), asked, parse_machine("h200"))
    with pytest.raises(BadInput, match=f"it is not a start of {other}") as caught:
        refuse_contradiction(seen.observations, zoo_model(other), planned, seen.log)
    assert message in str(caught.value)


def test_a_tokens_bytes_tell_models_of_one_size_apart(tmp_path: Path) -> None:
    model = zoo_model(QWEN)
    halved = tuple(
        msgspec.structs.replace(layer, mixer=msgspec.structs.replace(layer.mixer, kv_heads=4)) for layer in model.layers
    )
    path = tmp_path / "vllm.log"
    path.write_text(VLLM)
    (cause,) = found(look(path), msgspec.structs.replace(model, layers=halved), "0.19.0")
    assert cause == "a token takes 114,688 B in the log's pool, and 57,344 B of the model's"


def test_vllm_names_the_architecture(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM.replace("INFO 11-29 20:17:03", "INFO x Resolved architecture: LlamaForCausalLM\nINFO x", 1))
    (cause,) = found(look(path), zoo_model(QWEN), "0.19.0")
    assert cause == "the log has LlamaForCausalLM, the model Qwen3ForCausalLM"
