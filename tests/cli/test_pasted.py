"""Pasted launch commands, from words to a plan."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cli.pasted import launch_words, read_command
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import plan
from tests.cli.test_main import draft
from tests.zoo import rows, zoo_model

QWEN = "Qwen/Qwen3-0.6B"
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "8",
    "16",
    "4096",
    "8k",
    "8K",
    "8Ki",
    "1e9",
    "99999999999999999999",
    "x",
    "",
    "0.9",
)
FLAGS = (
    "--tp", "-tp", "--tensor-parallel-size", "--pp-size", "-pp", "--dp", "-dp", "--dcp-size", "-dcp", "--ep-size",
    "--mem-fraction-static", "--gpu-memory-utilization", "--max-model-len", "--context-length", "--max-num-seqs",
    "--max-running-requests", "--block-size", "--page-size", "--chunked-prefill-size", "--max-num-batched-tokens",
    "--num-gpu-blocks-override", "--kv-cache-memory-bytes", "--max-total-tokens", "--cuda-graph-max-bs-decode",
    "--swa-full-tokens-ratio", "--max-mamba-cache-size", "--max-prefill-tokens", "--speculative-num-steps", "--nnodes",
    "--attn-dp-size", "--max", "--speculative", "--no-enable-prefix-caching", "--enable-dp-attention", "-O", "-cc.mode",
    "--enforce-eager", "--disable-cuda-graph", "--enable-expert-parallel", "--made-up", "-x", "--", "-",
)  # fmt: skip
VALUED = (
    "--kv-cache-dtype fp8", "--kv-cache-dtype fp8_e4m3", "--kv-cache-dtype auto", "--quantization fp8", "-q awq",
    "--dtype half", "--dtype int8", "--speculative-algorithm EAGLE3", "--speculative-algorithm NGRAM",
    "--speculative-config.method ngram", "--speculative-config.num_speculative_tokens 2", "--speculative-config {}",
    "--attention-backend flashinfer", "--attention-backend trtllm_mla", "--moe-a2a-backend deepep",
)  # fmt: skip
WORDS = st.one_of(
    st.tuples(st.sampled_from(FLAGS), st.sampled_from(NUMBERS)).map(list),
    st.tuples(st.sampled_from(FLAGS), st.sampled_from(NUMBERS)).map(lambda pair: ["=".join(pair)]),
    st.sampled_from(FLAGS).map(lambda flag: [flag]),
    st.sampled_from(VALUED).map(str.split),
    st.text(max_size=6).map(lambda word: [word]),
)
STARTS = (
    ["vllm", "serve", QWEN],
    ["python", "-m", "sglang.launch_server", "--model-path", QWEN],
    ["sglang", "serve", QWEN],
)
ENVIRONMENT = st.sampled_from(
    (
        [],
        ["CUDA_VISIBLE_DEVICES=0,1"],
        ["CUDA_VISIBLE_DEVICES="],
        ["VLLM_X=1"],
        ["PYTORCH_ALLOC_CONF=expandable_segments:True"],
    )
)
VERSIONS = st.sampled_from((None, "0.5.23", "0.5.15.post1", "0.5.2", "0.33.0", "0.9.2", "0.40.0", "0.0.0", "x"))


@given(start=st.sampled_from(STARTS), before=ENVIRONMENT, words=st.lists(WORDS, max_size=6), version=VERSIONS)
@settings(max_examples=200, deadline=None)
def test_any_command_is_planned_or_refused(
    start: list[str], before: list[str], words: list[list[str]], version: str | None
) -> None:
    argv = (*before, *start, *(word for some in words for word in some))
    try:
        pasted = read_command(argv, version)
        found = plan(zoo_model(QWEN), pasted.configuration, parse_machine("h200:8"))
    except BadInput:
        return
    assert found.pool.tokens >= 0
    assert found.gpus <= 8
    assert all(0 <= risk.probability <= 1 for risk in found.risks)
    assert (found.pool.low or 0) <= found.pool.tokens <= (found.pool.high or found.pool.tokens)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(rows()[QWEN]["config"]))
    return str(path)


@pytest.mark.parametrize(
    ("words", "rc", "said"),
    [
        (("--", "vllm serve CONFIG --max-model-len 8K \\\n -O0 2>&1 | tee log"), 0, "vllm 0.33.0"),
        (("--", "docker", "run", "vllm/vllm-openai:v0.10.2", "--model", "CONFIG"), 0, "0.10.2, by the image's tag"),
        (("--", "nohup", "sglang", "serve", "CONFIG", "--mem-frac=0.8"), 0, "with sglang 0.5.23"),
        (("--", "vllm", "serve", "CONFIG", "-tp", "1", "-tp", "2"), 2, "the layout takes 2 GPUs, there are 1"),
        (("--", "vllm", "serve", "CONFIG", "--max-num-seqs", "8", "--max-num-seqs", "9"), 0, "is given 2 times (8, 9)"),
        (("--", "vllm", "serve", "CONFIG", "--revision", "abc"), 2, "lies on this machine and has no revisions"),
        (("--revision", "x", "--", "vllm", "serve", "CONFIG", "--revision", "y"), 2, "contradicts the command's y"),
        (("CONFIG", "--revision", "abc"), 2, "lies on this machine and has no revisions"),
        (("CONFIG", "--draft", "CONFIG"), 2, "the model itself is no draft"),
        (("CONFIG", "--engine-version", "0.9.9"), 0, "sglang 0.9.9 was not read"),
        (("CONFIG", "--max-running", "4", "--context", "4k", "--concurrency", "8"), 2, "contradicts a limit of 4"),
        (("CONFIG", "--context", "0"), 2, "--context: 0 is less than 1"),
        (("CONFIG", "--mem-fraction", "nan"), 2, "--mem-fraction"),
        (("CONFIG", "--pool-tokens", "99m"), 0, "is more than the"),
        (("MODEL", "--", "docker", "run", "vllm/vllm-openai", "m", "-tp", "2"), 2, "both a model and a launch command"),
    ],
)
def test_what_comes_of_it(config: str, tmp_path: Path, words: tuple[str, ...], rc: int, said: str) -> None:
    meant = (word.replace("CONFIG", config) for word in words)
    done = draft("plan", "--gpu", "h200", *meant, store=tmp_path / "d.db")
    assert done.returncode == rc, done.stderr
    assert said in " ".join((done.stderr if rc == 2 else done.stdout).split())
    assert "Traceback" not in done.stderr


def test_a_draft_alone_is_in_the_plan(tmp_path: Path, config: str) -> None:
    other = tmp_path / "draft.json"
    other.write_text(json.dumps({**rows()[QWEN]["config"], "num_hidden_layers": 2}))
    arguments = ("plan", config, "--gpu", "h200", "--json")
    plain = json.loads(draft(*arguments, store=tmp_path / "d.db").stdout)
    drafted = json.loads(draft(*arguments, "--draft", str(other), store=tmp_path / "d.db").stdout)
    assert drafted["configuration"]["speculative"]["algorithm"] == "STANDALONE"
    assert drafted["configuration"]["speculative"]["draft_model"] == str(other)
    assert drafted["pool"]["tokens"] < plain["pool"]["tokens"]
    accounts = {entry["account"] for entry in drafted["ledgers"][0]["entries"]}
    assert {"draft weights", "draft pool"} <= accounts


@pytest.mark.parametrize("first", ["nohup", "docker", "env", "A=b", "vllm serve m", "python3.12", "/usr/bin/sglang"])
def test_a_command_is_no_model(first: str) -> None:
    assert launch_words(first, ["vllm", "serve", "m"]) == (first, "vllm", "serve", "m")
