"""Ask SGLang's own pool configurator what a token takes: one line a model and number of ranks.

    PYTHONPATH=UNPACKED_WHEEL:PACKAGES python scripts/sglang_cells.py tests/data/models/sglang-0.5.15-cells.jsonl

Run with a Python that has torch and transformers, on a machine without GPU; 0.5.15.post1 made the file that is kept.
PACKAGES is a folder with what SGLang imports (`pip install --target PACKAGES dill orjson pybase64 requests pyzmq
aiohttp IPython setproctitle psutil openai partial_json_parser`). Its ModelConfig reads each config.json, and its
ModelRunner and configurator are asked as they are. Nothing is loaded, quantization is put aside, the ranks are said to
be 1 or 8, and the cache to be bf16.
"""

import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", SGLANG_LOG_LEVEL="ERROR")

import torch
import transformers
from stand_in import Absent
from transformers.models.auto import configuration_auto

CONFIGS = Path(__file__).resolve().parents[1] / "tests" / "data" / "models" / "configs.jsonl"
RANKS = (1, 8)
ABSENT = ("torchvision", "sentencepiece", "einops", "compressed_tensors", "gguf")
"""What SGLang imports and this needs not."""


def import_sglang() -> tuple[Any, Any, Any, Any]:
    """Its ModelConfig, ModelRunner, configurator and algorithms; its configs take the place of newer transformers'."""
    sys.meta_path.append(Absent(ABSENT))
    register = configuration_auto.CONFIG_MAPPING.register
    configuration_auto.CONFIG_MAPPING.register = lambda key, value, **_: register(key, value, exist_ok=True)
    transformers.AutoConfig.register = staticmethod(lambda key, value, **_: register(key, value, exist_ok=True))
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_executor import pool_configurator
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    return ModelConfig, ModelRunner, pool_configurator, SpeculativeAlgorithm


def cell(config: Any, runner: Any, configurator: Any, algorithms: Any, ranks: int) -> float:
    """Bytes a token by which the pool of one rank is sized."""
    made = object.__new__(runner)
    layers = config.num_hidden_layers
    made.__dict__ |= {
        "model_config": config, "kv_cache_dtype": torch.bfloat16, "dtype": torch.bfloat16, "start_layer": 0,
        "end_layer": layers, "num_effective_layers": layers, "is_draft_worker": False, "dp_size": 1,
        "is_hybrid_swa": config.is_hybrid_swa, "spec_algorithm": algorithms.NONE, "page_size": 1,
        "sliding_window_size": None, "use_mla_backend": config.attention_arch.name == "MLA",
        "_linear_attn_registry_cache": None,
        "server_args": types.SimpleNamespace(swa_full_tokens_ratio=0.8, max_running_requests=None),
    }  # fmt: skip
    configurator.get_attention_tp_size = lambda: ranks
    return float(configurator.create_memory_pool_configurator(made)._cell_size)


def main() -> None:
    """Write the answers."""
    model_config, runner, configurator, algorithms = import_sglang()
    with Path(sys.argv[1]).open("w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(CONFIGS.read_text(encoding="utf-8").splitlines()):
            row = json.loads(line)
            path = Path(folder) / str(number)
            path.mkdir()
            plain = {key: value for key, value in row["config"].items() if key != "quantization_config"}
            (path / "config.json").write_text(json.dumps(plain))
            answer: dict[str, Any] = {"name": row["name"]}
            try:
                config = model_config(str(path), trust_remote_code=False)
                answer["cells"] = {str(ranks): cell(config, runner, configurator, algorithms, ranks) for ranks in RANKS}
            except Exception as error:  # noqa: BLE001  whatever SGLang raises is its answer
                answer["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
            out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
