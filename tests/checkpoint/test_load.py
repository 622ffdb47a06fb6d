import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import load_model, read_model
from draftmark.checkpoint.weights import split_of
from draftmark.errors import BadInput
from draftmark.model import Gqa, Mla, Recurrent
from tests.zoo import rows, zoo_model

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in {**TINY, **changes}.items() if value is not None}))
    return path


# Parameters as the models' own cards state them.
STATED = {
    "Qwen/Qwen3-235B-A22B": 235e9,
    "Qwen/Qwen3-30B-A3B": 30.5e9,
    "Qwen/Qwen3-8B": 8.2e9,
    "deepseek-ai/DeepSeek-V3": 671e9,
    "meta-llama/Meta-Llama-3.1-405B": 405.9e9,
    "mistralai/Mixtral-8x7B-v0.1": 46.7e9,
    "openai/gpt-oss-120b": 116.8e9,
    "openai/gpt-oss-20b": 20.9e9,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.6e9,
    "Qwen/Qwen3.5-397B-A17B": 397e9,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108e9,
    "XiaomiMiMo/MiMo-V2-Flash": 309e9,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49.9e9,
}


@pytest.mark.parametrize("name", STATED)
def test_sizes_give_the_stated_parameters(name: str) -> None:
    parameters = sum(group.parameters for group in zoo_model(name).weights)
    assert parameters == pytest.approx(STATED[name], rel=0.006)


@pytest.mark.slow
def test_most_real_configurations_are_read_and_the_rest_refused_by_name() -> None:
    refused = {}
    for name in rows():
        try:
            zoo_model(name)
        except BadInput as error:
            refused[name] = error.cause
    assert len(rows()) == 89
    assert len(refused) <= 6
    for name, cause in refused.items():
        assert cause == f"unknown architecture {rows()[name]['config']['architectures'][0]!r}"


def test_kinds_of_layers() -> None:
    gemma = zoo_model("google/gemma-4-26B-A4B")
    windowed = [layer.mixer for layer in gemma.layers if isinstance(layer.mixer, Gqa) and layer.mixer.window]
    assert len(windowed) == 25
    assert len(gemma.layers) == 30
    kimi = zoo_model("nvidia/Kimi-K2.6-NVFP4")
    assert all(isinstance(layer.mixer, Mla) for layer in kimi.layers)
    assert sum(layer.experts for layer in kimi.layers) == 60
    glm = zoo_model("zai-org/GLM-5.2")
    selecting = [layer.mixer.indexer is not None for layer in glm.layers if isinstance(layer.mixer, Mla)]
    assert (sum(selecting), len(selecting)) == (21, 78)
    minimax = zoo_model("nvidia/MiniMax-M3-NVFP4")
    assert minimax.selects_blocks
    assert [layer.mixer.indexer is None for layer in minimax.layers if isinstance(layer.mixer, Gqa)].count(True) == 3
    qwen = zoo_model("Qwen/Qwen3.5-27B")
    assert sum(isinstance(layer.mixer, Recurrent) for layer in qwen.layers) == 48


def test_a_config_that_does_not_list_selecting_layers_is_refused() -> None:
    config = {**rows()["MiniMaxAI/MiniMax-M3"]["config"], "sparse_attention_config": {}}
    with pytest.raises(BadInput, match="lacks 'sparse_attention_freq'"):
        read_model(Files(place="m", name="m", config=config))


def test_a_block_selectors_weights() -> None:
    """Its queries divide as KV heads do and every rank holds its key: by sizes, and by tensors' names."""
    model = zoo_model("MiniMaxAI/MiniMax-M3")
    held = {group.split: group.parameters for group in model.weights if group.role == "attention" and group.layer == 59}
    assert held == {
        "tensor": 2 * 6144 * 64 * 128,
        "heads": 6144 * 4 * (128 + 128 + 128),
        "none": 6144 * 128,
    }
    prefix = "model.layers.59.self_attn"
    assert split_of(f"{prefix}.index_q_proj.weight", "attention") == "heads"
    assert split_of(f"{prefix}.index_k_proj.weight", "attention") == "none"
    assert split_of(f"{prefix}.q_proj.weight", "attention") == "tensor"


def test_headers_are_exact_and_sizes_agree_with_them(tmp_path: Path) -> None:
    written(tmp_path)
    tensors = {"model.embed_tokens.weight": (32, 8), "lm_head.weight": (32, 8), "model.norm.weight": (8,)}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.self_attn.q_proj.weight": (8, 8),
            f"{prefix}.self_attn.k_proj.weight": (4, 8),
            f"{prefix}.self_attn.v_proj.weight": (4, 8),
            f"{prefix}.self_attn.o_proj.weight": (8, 8),
            f"{prefix}.mlp.gate_proj.weight": (16, 8),
            f"{prefix}.mlp.up_proj.weight": (16, 8),
            f"{prefix}.mlp.down_proj.weight": (8, 16),
            f"{prefix}.input_layernorm.weight": (8,),
            f"{prefix}.post_attention_layernorm.weight": (8,),
        }
    arrays = {name: np.zeros(shape, dtype=np.float32) for name, shape in tensors.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    exact = load_model(str(tmp_path))
    assert exact.exact_weights
    assert exact.weight_bytes == sum(array.nbytes for array in arrays.values())
    estimated = load_model(str(tmp_path / "config.json"))
    assert not estimated.exact_weights
    assert estimated.weight_bytes == exact.weight_bytes - 8 * 4  # the last norm, which sizes leave out
    by_role = {group.role for group in exact.weights}
    assert by_role == {"embedding", "head", "norm", "attention", "mlp"}
    keys = [group for group in exact.weights if group.split == "heads"]
    assert sum(group.parameters for group in keys) == 2 * 2 * 4 * 8


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    written(tmp_path, num_hidden_layers=None)
    with pytest.raises(BadInput, match="num_hidden_layers") as caught:
        load_model(str(tmp_path))
    assert "config.json" in caught.value.place


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="NewForCausalLM"):
        load_model(str(written(tmp_path, architectures=["NewForCausalLM"])))


def test_an_unknown_quantization_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown quantization 'exotic'"):
        load_model(str(written(tmp_path, quantization_config={"quant_method": "exotic"})))


@pytest.mark.parametrize(("text", "cause"), [("{", "not JSON"), ("[1]", "not a JSON object"), ('"x"', "not a JSON")])
def test_broken_json_is_said_to_be(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=cause):
        load_model(str(path))


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such model"):
        load_model(str(tmp_path / "missing" / "folder"))
    with pytest.raises(BadInput, match=r"no config\.json"):
        load_model(str(tmp_path))


def test_a_broken_tensor_file_is_said_to_be(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00")
    with pytest.raises(BadInput, match="headers cannot be read"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            4.5,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ],
)
def test_quantized_layers_take_their_bits_and_the_embedding_does_not(
    tmp_path: Path, quantization: dict[str, Any], bits: float
) -> None:
    plain = load_model(str(written(tmp_path, torch_dtype="bfloat16")))
    model = load_model(str(written(tmp_path, torch_dtype="bfloat16", quantization_config=quantization)))
    for group, before in zip(model.weights, plain.weights, strict=True):
        expected = before.bytes if group.role in ("embedding", "head", "norm") else before.parameters * bits / 8
        assert group.bytes == round(expected)


def test_ignored_modules_stay_plain() -> None:
    row = rows()["moonshotai/Kimi-K2.5"]
    model = read_model(Files(place="x", name="x", config=row["config"]))
    attention = [group for group in model.weights if group.role == "attention" and group.layer == 5]
    experts = next(group for group in model.weights if group.role == "experts")
    assert all(group.bytes == 2 * group.parameters for group in attention)
    assert experts.bytes == pytest.approx(experts.parameters * 4.5 / 8)


def test_yarn_stretches_the_context(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert load_model(str(written(tmp_path, rope_scaling=scaling))).context == 256
    assert zoo_model("deepseek-ai/DeepSeek-V3").context == 163_840
