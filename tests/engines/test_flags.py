import json
import shlex

import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.errors import BadInput
from draftmark.units import Tokens

SCENARIO = (
    "--model-path moonshotai/Kimi-K2.6 --tp 8 --mem-fraction-static 0.93 --chunked-prefill-size 4096 "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path draft --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --kv-cache-dtype=fp8_e4m3 --trust-remote-code "
    "--enable-dp-attention --dp 8 --disable-radix-cache --made-up 3 --port 30000"
)


def test_sglang_both_ways() -> None:
    pasted = sglang_flags.parse_flags(tuple(shlex.split(SCENARIO)), (("A", "b"),))
    found = pasted.configuration
    assert found.model == "moonshotai/Kimi-K2.6"
    assert found.parallel == Parallel(tensor=8, data=8, data_attention=True)
    assert (found.memory_fraction, found.chunk, found.kv_dtype) == (0.93, 4096, "fp8_e4m3")
    assert found.speculative == Speculative(algorithm="EAGLE3", draft_model="draft", steps=3, top_k=1, draft_tokens=4)
    assert found.environment == (("A", "b"),)
    assert found.flags == ("--trust-remote-code", "--disable-radix-cache", "--made-up", "3")
    assert pasted.not_understood == ("--made-up 3",)
    again = sglang_flags.parse_flags(sglang_flags.write_flags(found), found.environment)
    assert again.configuration == found


def test_vllm_both_ways() -> None:
    line = (
        "Qwen/Qwen3-32B -tp 2 --gpu-memory-utilization 0.92 --max-model-len 32k --max_num_seqs 64 --enforce-eager "
        "--enable-expert-parallel --kv-cache-dtype fp8 --seed 1 --novel"
    )
    words = (*shlex.split(line), "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}')
    pasted = vllm_flags.parse_flags(words)
    found = pasted.configuration
    assert (found.model, found.parallel.tensor, found.parallel.expert) == ("Qwen/Qwen3-32B", 2, 2)
    assert (found.context, found.max_running, found.graphs) == (32_000, 64, False)
    assert found.speculative == Speculative(algorithm="mtp", draft_tokens=3)
    assert pasted.not_understood == ("--novel",)
    again = vllm_flags.parse_flags((found.model, *vllm_flags.write_flags(found)))
    assert again.configuration == found


def test_defaults_are_not_written() -> None:
    assert sglang_flags.write_flags(Configuration(engine="sglang", model="m")) == ("--model-path", "m")
    assert vllm_flags.write_flags(Configuration(engine="vllm", model="m", page=Tokens(16))) == ("--block-size", "16")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tp-size", "two"), "'two' is not a whole number"),
        (("--mem-fraction-static", "much"), "'much' is not a number"),
        (("--kv-cache-dtype", "fp8_e4m4"), "unknown value 'fp8_e4m4'; did you mean 'fp8_e4m3'"),
        (("--tp-size",), "expected one argument"),
    ],
)
def test_a_wrong_value_is_named_with_its_flag(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        sglang_flags.parse_flags(("--model-path", "m", *words))
    assert caught.value.place == words[0]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}, ()),
        ({"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "disable_padded_drafter_batch": True}, ()),
        (
            {"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1},
            ("--speculative-config.draft_tensor_parallel_size 1",),
        ),
        (
            {"method": "draft_model", "model": "d", "num_speculative_tokens": 3, "quantization": "fp8", "made_up": [1]},
            ('--speculative-config.quantization "fp8"', "--speculative-config.made_up [1]"),
        ),
    ],
)
def test_every_setting_of_speculation_is_kept_and_what_may_take_memory_is_named(
    settings: dict[str, object], named: tuple[str, ...]
) -> None:
    found = vllm_flags.parse_flags(("m", "--speculative-config", json.dumps(settings)))
    assert found.not_understood == named
    words = vllm_flags.write_flags(found.configuration)
    assert json.loads(words[words.index("--speculative-config") + 1]) == settings


def test_a_broken_speculative_config_is_named() -> None:
    with pytest.raises(BadInput, match="not JSON"):
        vllm_flags.parse_flags(("m", "--speculative-config", "{method: mtp}"))
