"""Ask vLLM itself what every configuration caches: one line of KV-cache specifications a model.

    PYTHON_OF_A_VLLM scripts/vllm_specs.py tests/data/models/vllm-0.32-specs.jsonl

Run with the Python of an environment that has the CPU build of vLLM (0.32.0 made the file that is kept). Models are
built without weights (torch's meta device). What does not concern the cache is put aside: quantization, vision towers
that need torchvision, experts that have no CPU kernel, and the refusal of sparse attention on a CPU. Four
configurations are respelled for classes that vLLM has: Kimi K2.5 as its text part, MiMo as Qwen 2, Step 3.7 as 3.5,
MiniMax M3's text as the part of a multimodal configuration.
"""

import dataclasses
import json
import os
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", VLLM_HOST_IP="127.0.0.1")

import torch
import transformers.utils.import_utils as availability
from stand_in import Absent

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "models"
FIRST = "Qwen/Qwen3-30B-A3B"
"""Built first, so that the groups of ranks that experts need exist."""


class NoExperts(torch.nn.Module):
    """In the place of experts; every number asked of it is zero."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return 0


def prepare() -> None:
    """Put aside what does not concern the cache."""
    assert not availability.is_torchvision_available()  # before it can be found, so that the answer stays no
    sys.meta_path.append(Absent(("torchvision",)))
    import vllm.model_executor.models.nemotron_h as nemotron
    import vllm.model_executor.models.registry as registry
    import vllm.models.minimax_m3.nvidia.model as minimax
    import vllm.platforms.cpu as platform

    registry._run_in_subprocess = lambda function: function()
    nemotron.NemotronHMoE = NoExperts
    minimax.MiniMaxM3MoE = NoExperts
    minimax.MiniMaxM3DecoderLayer.ffn_all_reduce_deferred = False  # asked of the experts; concerns no cache
    original = platform.CpuPlatform.get_attn_backend_cls.__func__

    def dense(cls: type, selected_backend: object, attn_selector_config: Any, num_heads: int | None = None) -> str:
        config = attn_selector_config
        if config.use_sparse:
            named = hasattr(config, "_replace")
            config = config._replace(use_sparse=False) if named else dataclasses.replace(config, use_sparse=False)
        return str(original(cls, selected_backend, config, num_heads))

    platform.CpuPlatform.get_attn_backend_cls = classmethod(dense)


def respelled(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration that vLLM 0.32 can read, with the same cache."""
    for part in (config, *(config[name] for name in ("text_config", "language_config") if name in config)):
        part.pop("quantization_config", None)
        part.pop("auto_map", None)
    architecture = config["architectures"][0]
    if architecture == "KimiK25ForConditionalGeneration":
        return {**config["text_config"], "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    if architecture == "Step3p7FlashForCausalLM":
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        narrow = {"attention_type": "sliding_attention", "head_dim": config["head_dim"]}
        return {
            **config,
            "architectures": ["Step3p5ForCausalLM"],
            "model_type": "step3p5",
            "max_seq_len": config["max_position_embeddings"],
            "moe_num_experts": config["num_experts"],
            "moe_top_k": config["num_experts_per_tok"],
            "num_attention_groups": groups,
            "attention_other_setting": {**narrow, "num_attention_heads": heads, "num_attention_groups": groups},
        }
    if architecture == "MiniMaxM3ForCausalLM":
        names = ["MiniMaxM3SparseForCausalLM"]
        text = {**config, "architectures": names, "model_type": "minimax_m3_text"}
        return {"architectures": names, "model_type": "minimax_m3_vl", "text_config": text}
    if architecture == "DeciLMForCausalLM":
        return {**config, "model_type": "llama", "intermediate_size": 1, "num_key_value_heads": 8}
    if config.get("model_type") == "mimo":
        return {**config, "model_type": "qwen2"}
    return config


def specifications(config: dict[str, Any]) -> list[dict[str, Any]]:
    """vLLM's specifications of one configuration, equal layers counted."""
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(respelled(config)))
        arguments = EngineArgs(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            max_model_len=8192,
            max_num_seqs=8,
            dtype="bfloat16",
        )
        counted = built_layers(arguments.create_engine_config())
    names = ("spec", "block", "page_bytes", "window")
    return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in counted.items()]


def built_layers(built: Any) -> "Counter[tuple[Any, ...]]":
    """The layers of a model built without weights, equal specifications counted."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.model_executor.model_loader.utils import initialize_model

    blocks = getattr(built.model_config.hf_config, "block_configs", None)
    if blocks:
        named = [types.SimpleNamespace(**{k: types.SimpleNamespace(**v) for k, v in b.items()}) for b in blocks]
        built.model_config.hf_config.block_configs = named
    counted: Counter[tuple[Any, ...]] = Counter()
    with set_current_vllm_config(built):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, "tcp://127.0.0.1:29777", 0, "gloo")
            ensure_model_parallel_initialized(1, 1)
        with torch.device("meta"):
            initialize_model(built)
        for layer in built.compilation_config.static_forward_context.values():
            spec = layer.get_kv_cache_spec(built) if hasattr(layer, "get_kv_cache_spec") else None
            if spec is not None:
                window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
                counted[type(spec).__name__, spec.block_size, spec.page_size_bytes, window] += 1
    return counted


def main() -> None:
    """Write one line a configuration: its layers, or why vLLM would not build it."""
    prepare()
    rows = [json.loads(line) for line in (DATA / "configs.jsonl").read_text().splitlines()]
    lines = {}
    for row in sorted(rows, key=lambda row: row["name"] != FIRST):
        try:
            lines[row["name"]] = {"name": row["name"], "layers": specifications(row["config"])}
        except Exception as error:  # noqa: BLE001 - whatever one model raises is its line
            lines[row["name"]] = {"name": row["name"], "error": f"{type(error).__name__}: {error}".split("\n")[0][:120]}
        print(json.dumps(lines[row["name"]])[:200], flush=True)
    text = "".join(json.dumps(lines[name], separators=(",", ":")) + "\n" for name in sorted(lines))
    Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
