"""Caches with scales of blocks: bytes a token by hand, as the engines count them."""

from typing import Any

import pytest

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Plan, plan
from tests.zoo import zoo_model

DENSE, LATENT = "Qwen/Qwen3-32B", "nvidia/Kimi-K2.5-NVFP4"


def planned(engine: EngineName, name: str, gpu: str, dtype: str, tensor: int = 1, **fields: Any) -> Plan:
    parallel = Parallel(tensor=tensor)
    asked = Configuration(engine=engine, model=name, kv_dtype=dtype, parallel=parallel, **fields)
    return plan(zoo_model(name), asked, parse_machine(f"{gpu}:{tensor}"))


@pytest.mark.parametrize(
    ("engine", "gpu", "dtype", "tensor", "token"),
    [
        # 64 layers of 8 heads of 128: 64 * 8 * 256 = 131,072 elements.
        ("sglang", "b200", "fp8_e4m3", 1, 131_072),
        ("sglang", "b200", "mxfp8", 1, 131_072 + 131_072 // 32),
        ("sglang", "b200", "fp4_mx_block16", 1, 131_072 // 2 + 131_072 // 16),
        ("sglang", "b200", "nvfp4", 1, 131_072 // 2 + 131_072 // 16),
        ("sglang", "b200", "nvfp4", 8, (131_072 // 2 + 131_072 // 16) // 8),
        # FlashInfer's prefill reads one layer of it in fp8.
        ("sglang", "rtx-pro-6000", "nvfp4", 1, 131_072 // 2 + 131_072 // 16 + 2_048),
        ("vllm", "b200", "nvfp4", 1, 131_072 // 2 + 131_072 // 16),
        ("vllm", "b200", "nvfp4_4over6", 4, (131_072 // 2 + 131_072 // 16) // 4),
    ],
)
def test_bytes_a_token_of_heads(engine: EngineName, gpu: str, dtype: str, tensor: int, token: int) -> None:
    found = planned(engine, DENSE, gpu, dtype, tensor)
    assert found.bytes_per_token == token
    assert found.pool.tokens > planned(engine, DENSE, gpu, "bfloat16", tensor).pool.tokens


def test_bytes_a_token_of_latents() -> None:
    assert planned("sglang", LATENT, "b200", "fp4_mx_block16", 8).bytes_per_token == 61 * (576 // 2 + 576 // 16)


@pytest.mark.parametrize(
    ("engine", "name", "dtype"),
    [
        ("sglang", LATENT, "nvfp4"),
        ("sglang", LATENT, "mxfp8"),
        ("sglang", "deepseek-ai/DeepSeek-V3.2", "fp4_mx_block16"),
        ("sglang", "openai/gpt-oss-120b", "fp4_mx_block16"),
        ("sglang", "Qwen/Qwen3.5-27B", "nvfp4"),
        ("vllm", LATENT, "nvfp4"),
        ("vllm", DENSE, "fp8_ds_mla"),
        ("vllm", DENSE, "turboquant_k8v4"),
        ("vllm", DENSE, "mxfp8"),
        ("sglang", DENSE, "nvfp4_ds_mla"),
    ],
)
def test_a_cache_that_was_not_read_for_the_model_is_refused(engine: EngineName, name: str, dtype: str) -> None:
    with pytest.raises(BadInput, match=r"cache|known"):
        planned(engine, name, "b200", dtype)


@pytest.mark.parametrize("gpu", ["h100", "a100", "4090"])
def test_nvfp4_asks_for_blackwell_with_sglang(gpu: str) -> None:
    with pytest.raises(BadInput, match="sm_100"):
        planned("sglang", DENSE, gpu, "nvfp4")
