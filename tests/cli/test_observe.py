"""`draftmark observe` takes a log in."""

import json
from pathlib import Path

import pytest

from draftmark.store import Store
from tests.cli.test_main import draft
from tests.serve.test_observe import QWEN, sglang_log
from tests.zoo import rows


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "Qwen--Qwen3-0.6B_config.json"
    path.write_text(json.dumps(rows()[QWEN]["config"]))
    return str(path)


def test_prediction_beside_observation(tmp_path: Path, config: str) -> None:
    log, store = str(sglang_log("qwen3-0_6b", tmp_path)), tmp_path / "d.db"
    arguments = ("observe", log, "--gpu", "h200", "--engine-version", "0.5.15.post1", "--model", config)
    done = draft(*arguments, store=store)
    assert done.returncode == 0, done.stderr
    assert "with sglang 0.5.15.post1 on 1 x NVIDIA H200" in done.stdout
    assert "is kept as trial 1" in done.stdout
    assert "was kept before as trial 1" in draft(*arguments, store=store).stdout
    with Store(store) as opened:
        (run,) = opened.runs()
    assert (run.command, run.status) == ("observe", "done")
    planned = draft("plan", config, "--gpu", "h200", "--engine-version", "0.5.15.post1", store=store)
    assert "one past start of this engine on this GPU" in planned.stdout


def test_the_engines_version_must_be_known(tmp_path: Path, config: str) -> None:
    log = str(sglang_log("qwen3-0_6b", tmp_path))
    done = draft("observe", log, "--gpu", "h200", "--model", config, store=tmp_path / "d.db")
    assert done.returncode == 2
    assert "sglang does not log its version; name it with --engine-version" in done.stderr


def test_a_command_of_another_engine_is_refused(tmp_path: Path, config: str) -> None:
    log = str(sglang_log("qwen3-0_6b", tmp_path))
    done = draft("observe", log, "--gpu", "h200", "--", "vllm", "serve", config, store=tmp_path / "d.db")
    assert done.returncode == 2
    assert "the command starts vllm, the log is sglang's" in done.stderr
