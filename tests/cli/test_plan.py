import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from draftmark.planner import Plan
from tests.zoo import rows


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from draftmark.cli.main import main; main()", "plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "Qwen--Qwen3-0.6B_config.json"
    path.write_text(json.dumps(rows()["Qwen/Qwen3-0.6B"]["config"]))
    return str(path)


def test_text(config: str) -> None:
    done = run(config, "--engine", "embedded", "--memory", "4Gi")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3-0.6B" in done.stdout
    assert "Pool: " in done.stdout


def test_json_is_the_plan_itself(config: str) -> None:
    done = run(config, "--engine", "embedded", "--memory", "4Gi", "--json")
    found = msgspec.json.decode(done.stdout, type=Plan)
    assert found.pool.tokens == (2 * 2**30 - 596_019_200 * 2) // found.bytes_per_token
    assert found.bytes_per_token == 28 * 8 * 256 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere/", "--engine", "embedded"), "no such model"),
        (("CONFIG", "--engine", "embedded", "--max-context", "1m"), "beyond the model's own 40960"),
        (("CONFIG", "--engine", "embedded", "--chunk", "many"), "--chunk: 'many' is not a number of tokens"),
        (("CONFIG", "--gpu", "h2000"), "unknown GPU"),
    ],
)
def test_bad_input_is_one_line(config: str, arguments: tuple[str, ...], message: str) -> None:
    done = run(*(config if argument == "CONFIG" else argument for argument in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_pasted_command_with_assignments_and_an_unknown_flag(config: str) -> None:
    command = f"env A=1 CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server --model-path {config} --made-up 7"
    done = run("--gpu", "h200", "--json", "--", *command.split(), "--mem-fraction-static", "0.8")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=Plan)
    assert found.configuration.engine == "sglang"
    assert found.configuration.memory_fraction == 0.8
    assert found.configuration.environment == (("A", "1"), ("CUDA_VISIBLE_DEVICES", "0"))
    assert found.not_understood == ("--made-up 7",)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("context", ["1k", "38k"])
def test_json_of_a_target_has_the_command_that_the_text_shows_and_its_columns(
    config: str, engine: str, context: str
) -> None:
    arguments = (config, "--gpu", "h200", "--engine", engine, "--context", context, "--concurrency", "4")
    text, found = run(*arguments).stdout, msgspec.json.decode(run(*arguments, "--json").stdout)
    assert shlex.join(found["command"]["argv"]) in text
    first = found["candidates"][0]
    assert first["safe"]
    assert first["reaches"]
    assert first["fits"] >= 0.9
    assert first["risk"] <= 0.1
    assert first["headroom"] == first["plan"]["ledgers"][0]["entries"][-1]["bytes"]


def test_json_of_a_target_that_nothing_reaches_has_no_command(config: str) -> None:
    arguments = (config, "--gpu", "3060", "--context", "40k", "--concurrency", "64")
    done = run(*arguments, "--json")
    assert done.returncode == 1
    assert msgspec.json.decode(done.stdout)["command"] is None
    text = run(*arguments).stdout
    assert "configurations were tried." in text
    assert "others were tried" not in text


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(("gpus", "hosts", "said"), [(8, None, False), (16, None, True), (16, 2, False)])
def test_more_gpus_than_a_host_has_are_said_where_no_hosts_are_named(
    config: str, engine: str, gpus: int, hosts: int | None, said: bool
) -> None:
    program = {"sglang": "python -m sglang.launch_server --model-path", "vllm": "vllm serve"}[engine]
    layout = ["--tensor-parallel-size", "4", "--pipeline-parallel-size", str(gpus // 4)]
    command = [*program.split(), config, *layout, *(["--nnodes", str(hosts)] if hosts else [])]
    found = msgspec.json.decode(run("--gpu", f"h100:{gpus}", "--json", "--", *command).stdout, type=Plan)
    assert any("as if one host had them" in note for note in found.notes) is said
    assert found.not_understood == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [("Qwen3-0.6B-NVFP4", True), ("Qwen3-0.6B-FP8", True), ("qwen3-0.6b-awq", True), ("Qwen3-0.6B", False)],
)
def test_a_name_that_tells_of_a_quantization_which_the_config_lacks(
    config: str, tmp_path: Path, name: str, said: bool
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(Path(config).read_text())
    notes = msgspec.json.decode(run(str(folder), "--gpu", "h100", "--json").stdout, type=Plan).notes
    assert any("the config names no quantization" in note for note in notes) is said


def test_a_pasted_vllm_command(config: str) -> None:
    done = run("--gpu", "h100", "--engine-version", "0.19.0", "--", "vllm", "serve", config, "--max-model-len", "8k")
    assert done.returncode == 0, done.stderr
    assert "with vllm 0.19.0 on 1 x NVIDIA H100" in done.stdout


def test_a_plan_that_cannot_start_says_so(config: str) -> None:
    arguments = (config, "--engine", "embedded", "--memory", "4Gi", "--pool-tokens", "999999999999999")
    found = msgspec.json.decode(run(*arguments, "--json").stdout, type=Plan)
    assert not found.fits
    assert [(risk.phase, risk.probability) for risk in found.risks] == [("pool", 1.0)]
    assert {room.requests for room in found.room} == {0}
    assert found.longest_request == 0
    text = run(*arguments).stdout
    assert text.startswith("It cannot start this way (pool): the pool is")
    assert "missing" in text
    assert not re.search(r"\s-\d", text), "no negative sizes"


@pytest.mark.parametrize("engine", ["embedded", "sglang", "vllm"])
def test_weights_larger_than_the_gpu_cannot_start(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "config.json"
    config = {**rows()["Qwen/Qwen3-0.6B"]["config"], "hidden_size": 8192, "intermediate_size": 49152}
    path.write_text(json.dumps({**config, "num_hidden_layers": 80}))
    done = run(str(path), "--engine", engine, "--gpu", "rtx-3060", "--json")
    found = msgspec.json.decode(done.stdout, type=Plan)
    assert not found.fits
    assert any(risk.phase in ("load", "pool") and risk.probability > 0.99 for risk in found.risks), found.risks
    assert {room.requests for room in found.room} == {0}


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("--mem-fraction", "1"), "It cannot start this way (graphs): "),
        (("--mem-fraction", "0.98"), "It probably cannot start this way (graphs, "),
        (("--mem-fraction", "0.01"), "It cannot start this way (pool): "),
        (
            ("--mem-fraction", "0.988", "--max-running", "8"),
            "It starts, and probably runs out of memory when it serves (",
        ),
        (("--mem-fraction", "0.9"), ""),
        (("--engine", "vllm", "--mem-fraction", "1"), "It cannot start this way (load): "),
        (("--engine", "vllm", "--mem-fraction", "0.01"), "It cannot start this way (pool): "),
    ],
)
def test_what_ends_a_start_or_the_first_requests_stands_first(
    config: str, arguments: tuple[str, ...], first: str
) -> None:
    text = run(config, "--gpu", "h100", *arguments).stdout
    assert text.startswith(first or "Qwen/Qwen3-0.6B ")
    assert not re.search(r"(?<!= )-\d[\d.]* GiB", text), "a size below nothing, but for the budget's own sum"


def test_a_float32_checkpoint_is_cast_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**rows()["Qwen/Qwen3-0.6B"]["config"], "torch_dtype": "float32"}))
    done = run(str(path), "--engine", "vllm", "--gpu", "h200", "--json")
    found = msgspec.json.decode(done.stdout, type=Plan)
    (reason,) = [reason for reason in found.reasons if reason.field == "dtype"]
    assert found.configuration.dtype == "bfloat16"
    assert "float32, which vLLM casts" in reason.why


def test_a_target_gives_a_command_line(config: str) -> None:
    done = run(config, "--gpu", "rtx-4090", "--context", "30k", "--output", "2k", "--concurrency", "2")
    assert done.returncode == 0, done.stderr
    assert "Target: 2 x (30,000 tokens of context + 2,000 of output)" in done.stdout
    assert f"python -m sglang.launch_server --model-path {config}" in done.stdout


def test_a_target_that_nothing_reaches_fails_a_check(config: str) -> None:
    done = run(config, "--gpu", "rtx-3060", "--context", "40k", "--concurrency", "3000")
    assert done.returncode == 1
    assert "Nothing reaches it" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "bash", "run.sh"), "not a launch command"),
        (("--gpu", "h200"), "no model given"),
        (("CONFIG",), "no GPU here; say which ones to plan for, like --gpu h200:8, or plan this machine's CPU with"),
        (("/nope",), "/nope: no such model"),
        (("CONFIG", "EMBEDDED", "--chunk", "0"), "--chunk: the embedded engine takes 1 or more, not 0"),
        (("CONFIG", "EMBEDDED", "--max-context", "0"), "--context: the embedded engine takes 1 or more, not 0"),
        (("CONFIG", "EMBEDDED", "--pool-tokens", "0"), "--pool-tokens: the embedded engine takes 1 or more, not 0"),
        (("CONFIG", "EMBEDDED", "--mem-fraction", "0"), "--mem-fraction: the embedded engine takes above 0"),
        (("CONFIG", "EMBEDDED", "--memory", "0"), "--memory: '0' leaves no memory"),
        (("CONFIG", "EMBEDDED", "--kv-dtype", "foo"), "--kv-dtype: the embedded engine caches in the served dtype"),
        (("CONFIG", "EMBEDDED", "--dtype", "fp4_e2m1"), "--dtype: the embedded engine does not serve in 'fp4_e2m1'"),
        (("CONFIG", "EMBEDDED", "--tp", "2"), "--tp: the embedded engine runs on one GPU"),
        (("CONFIG", "EMBEDDED", "--engine-version", "7"), "there is no version '7'"),
        (("CONFIG", "EMBEDDED", "--draft", "CONFIG"), "--draft: the embedded engine has no speculative decoding"),
        (("CONFIG", "EMBEDDED", "--device", "cpu", "--gpu", "h200"), "--device cpu: contradicts --gpu h200"),
        (("CONFIG", "--gpu", "h200", "--chunk", "0"), "--chunk: 0 is less than 1"),
        (("CONFIG", "--gpu", "h200", "--pool-tokens", "0"), "--pool-tokens: 0 is less than 1"),
        (("CONFIG", "--gpu", "h200", "--mem-fraction", "0"), "--mem-fraction: 0.0 is not above 0"),
        (("CONFIG", "--gpu", "h200", "--dtype", "fp4_e2m1"), "--dtype: unknown dtype 'fp4_e2m1'"),
        (("CONFIG", "--gpu", "h200", "--device", "cpu"), "--device: only the embedded engine"),
        (("CONFIG", "--gpu", "h200", "--memory", "2Gi"), "--memory: only the embedded engine"),
        (("CONFIG", "--gpu", "h200", "--engine", "vllm", "--pool-tokens", "0"), "--pool-tokens: 0 is less than 1"),
        (
            ("CONFIG", "--gpu", "h200", "--engine", "vllm", "--pool-tokens", "9k"),
            "vLLM does not take its pool in tokens",
        ),
        (("CONFIG", "--gpu", "h200", "--output", "1k"), "a target needs a context"),
        (
            ("--gpu", "h200", "--engine", "sglang", "--", "vllm", "serve", "CONFIG"),
            "the command starts vllm, not sglang",
        ),
        (("--gpu", "h200", "--tp", "2", "--", "vllm", "serve", "CONFIG"), "--tp and --pp: does not go with a pasted"),
        (("--gpu", "h200", "--chunk", "2k", "--", "vllm", "serve", "CONFIG"), "--chunk: does not go with a pasted"),
        (("CONFIG", "--gpu", "h200", "--", "vllm", "serve", "CONFIG"), "both a model and a launch command"),
        (("--gpu", "h200", "--", "vllm", "serve", "CONFIG", "--max-num-seqs", "0"), "--max-running: 0 is less than 1"),
        (("CONFIG", "--gpu", "h200", "--tp", "2"), "takes 2 GPUs, there are 1"),
        (("CONFIG", "--gpu", "h200", "--kv-dtype", "int3"), "unknown dtype 'int3'"),
        (("CONFIG", "--gpu", "h200", "--context", "1m"), "beyond the model's own 40960"),
    ],
)
def test_more_bad_input(config: str, words: tuple[str, ...], message: str) -> None:
    meant = {"CONFIG": config, "EMBEDDED": "--engine=embedded"}
    done = run(*(meant.get(word, word) for word in words))
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_needs_nothing_heavy(config: str) -> None:
    script = (
        "import sys; from draftmark.cli.main import app\n"
        f"app(args=['plan', {config!r}, '--gpu', 'h200', '--context', '30k'], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def kimi(tmp_path: Path) -> str:
    path = tmp_path / "Kimi-K2-Instruct_config.json"
    path.write_text(json.dumps(rows()["moonshotai/Kimi-K2-Instruct"]["config"]))
    return str(path)


def test_without_a_layout_all_gpus_are_taken_and_the_reason_is_shown(kimi: str) -> None:
    found = msgspec.json.decode(run(kimi, "--gpu", "h200:8", "--json").stdout, type=Plan)
    assert found.configuration.parallel.tensor == found.gpus == 8
    assert [reason.why for reason in found.reasons if reason.field == "tp"] == ["all 8 GPUs given"]
    text = run(kimi, "--gpu", "h200:8", "--pp", "2").stdout
    assert "all 8 GPUs given in 2 stages" in text
    one = run(kimi, "--gpu", "h200:8", "--tp", "1", "--json").stdout
    alone = msgspec.json.decode(one, type=Plan)
    assert (alone.gpus, alone.notes[0]) == (1, "this layout uses 1 of the 8 GPUs")


def test_a_layout_beside_a_pasted_command_is_refused_even_where_it_is_the_default(config: str) -> None:
    done = run("--gpu", "h200", "--tp", "1", "--", "vllm", "serve", config)
    assert done.returncode == 2
    assert "--tp and --pp: does not go with a pasted command" in done.stderr


def test_a_forbidden_pair_is_said_first(tmp_path: Path) -> None:
    path = tmp_path / "DeepSeek-V3_config.json"
    path.write_text(json.dumps(rows()["deepseek-ai/DeepSeek-V3"]["config"]))
    command = f"python -m sglang.launch_server --model-path {path} --tp 8 --attention-backend flashmla"
    draft = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4"
    words = (*command.split(), *draft.split(), "--speculative-num-draft-tokens", "8")
    planned = run("--gpu", "h200:8", "--", *words)
    assert planned.stdout.startswith("It cannot start this way: trees and pages cannot be combined (sglang")
    solved = run("--gpu", "h200:8", "--context", "8k", "--", *words)
    assert solved.stdout.startswith("As asked it cannot start: trees and pages cannot be combined")


def test_vllm_that_cannot_start_says_so_first(kimi: str) -> None:
    done = run(kimi, "--engine", "vllm", "--gpu", "rtx-4090:8")
    assert done.stdout.startswith("It cannot start this way (load)")
    short = run(kimi, "--engine", "vllm", "--gpu", "h200:8", "--mem-fraction", "0.88")
    assert short.stdout.startswith("It cannot start this way (pool)")


def test_data_parallel_ranks_and_context_ranks_are_both_counted(kimi: str) -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", kimi, "--tp", "8")
    spread = run("--gpu", "b200:8", "--", *command, "--dp", "8", "--enable-dp-attention").stdout
    assert "Each of 8 data-parallel ranks has such a pool" in spread
    assert "all 8 ranks" in spread
    shared = run("--gpu", "b200:8", "--", *command, "--dcp-size", "8")
    assert "That is what the engine prints, one rank's share; 8 decode context ranks together hold" in shared.stdout
    target = run("--gpu", "b200:8", "--context", "100k", "--", *command, "--dcp-size", "8").stdout
    assert "tokens as the engine prints them" in target


def test_a_command_to_launch_is_one_line(kimi: str) -> None:
    done = run(kimi, "--gpu", "h200:8", "--context", "100k", "--output", "4k")
    (line,) = [line for line in done.stdout.splitlines() if "sglang.launch_server" in line]
    assert line.endswith("--enable-metrics")
    assert len(line) > 160


def test_a_limit_of_requests_is_said_to_be_what_is_short(tmp_path: Path) -> None:
    """With speculation SGLang runs 48 requests at once unless told otherwise."""
    path = tmp_path / "DeepSeek-V3_config.json"
    path.write_text(json.dumps(rows()["deepseek-ai/DeepSeek-V3"]["config"]))
    command = f"python -m sglang.launch_server --model-path {path} --tp 8 --speculative-algorithm EAGLE"
    done = run("--gpu", "b200:8", "--context", "8k", "--concurrency", "64", "--", *command.split())
    assert "it does not fit, for at most 48 requests run at once" in done.stdout
    assert "--max-running-requests 64" in done.stdout
