import json
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


def test_a_pasted_vllm_command(config: str) -> None:
    done = run("--gpu", "h100", "--engine-version", "0.19.0", "--", "vllm", "serve", config, "--max-model-len", "8k")
    assert done.returncode == 0, done.stderr
    assert "with vllm 0.19.0 on 1 x NVIDIA H100" in done.stdout


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
        (("CONFIG", "--gpu", "h200", "--tp", "2"), "takes 2 GPUs, there are 1"),
        (("CONFIG", "--gpu", "h200", "--kv-dtype", "int3"), "unknown dtype 'int3'"),
        (("CONFIG", "--gpu", "h200", "--context", "1m"), "beyond the model's own 40960"),
    ],
)
def test_more_bad_input(config: str, words: tuple[str, ...], message: str) -> None:
    done = run(*(config if word == "CONFIG" else word for word in words))
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
