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
