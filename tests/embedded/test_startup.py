"""How the process starts and ends, and what it says when it cannot."""

import asyncio
import json
import shutil
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run
from typing import Any

import httpx
import pytest
from transformers import MambaConfig

from draftmark.embedded import tiny
from draftmark.embedded.api import Api
from draftmark.embedded.metrics import Metrics
from tests.embedded.process import finished, server, start

pytestmark = pytest.mark.engine


def one_line(log: str) -> str:
    """The only line that is no progress; fails where there are more, as of a traceback."""
    lines = [line for line in log.splitlines() if " INFO " not in line]
    assert len(lines) == 1, log
    return lines[0]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(checkpoints: Path, tmp_path: Path, how: signal.Signals) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "256Mi", "--device", "cpu")
    with server(tmp_path / "log", *arguments) as running:
        body = {"prompt": [11] * 10, "max_tokens": 8000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{running.url}/v1/completions", json=body, timeout=60) as answer:
            next(answer.iter_lines())
            assert running.end(how) == 0
    log = running.log.read_text()
    assert "phase=stopping" in log
    assert "Traceback" not in log


def test_whole_replies_are_refused_when_it_ends(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "256Mi", "--device", "cpu")
    with server(tmp_path / "log", *arguments) as running, ThreadPoolExecutor() as pool:
        body = {"prompt": [11] * 10, "max_tokens": 8000, "ignore_eos": True}
        answer = pool.submit(httpx.post, f"{running.url}/v1/completions", json=body, timeout=60)
        while "admitted" not in running.log.read_text():
            time.sleep(0.01)
        assert running.end() == 0
        assert answer.result().status_code == 503
    assert "Traceback" not in running.log.read_text()


def test_a_signal_while_it_loads(checkpoints: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(log, "--model", str(checkpoints / "gqa"), "--port", "0", "--memory", "256Mi", "--device", "cpu")
    while " start " not in log.read_text() and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 0
    assert "phase=stopping" in log.read_text()


def test_memory_at_each_phase_and_the_pool_by_the_formula(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "mla"), "--memory", "256Mi", "--mem-fraction", "0.6", "--device", "cpu")
    with server(tmp_path / "log", *arguments, "--max-running", "16") as running:
        info = httpx.get(f"{running.url}/server_info").json()
    log = running.log.read_text()
    phases = [line.partition("phase=")[2].split()[0] for line in log.splitlines() if " phase=" in line]
    assert phases == ["init", "weights", "pool", "warm-up", "ready", "stopping"]
    assert all(
        "held=" in line and "free=" in line for line in log.splitlines() if " phase=" in line and "stop" not in line
    )
    budget = int(0.6 * 256 * 1024**2)
    assert info["pool_tokens"] == (budget - info["weight_bytes"]) // info["bytes_per_token"]
    assert f"tokens={info['pool_tokens']} bytes={info['pool_bytes']} " in log


def test_the_pool_is_no_larger_than_can_be_used(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "mla"), "--memory", "512Mi", "--max-running", "2", "--context", "1000")
    with server(tmp_path / "log", *arguments, "--device", "cpu") as running:
        assert httpx.get(f"{running.url}/server_info").json()["pool_tokens"] == 2000


def test_a_request_beyond_the_pool(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--pool-tokens", "500", "--device", "cpu")
    with server(tmp_path / "log", *arguments) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json={"prompt": [11] * 400, "max_tokens": 101})
    assert answer.status_code == 400
    assert all(number in answer.json()["error"]["message"] for number in ("501", "500"))


def test_out_of_memory_while_the_pool_is_reserved(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "128Mi", "--pool-tokens", "100k", "--device", "cpu")
    code, log = finished(tmp_path / "log", "--port", "0", *arguments)
    assert code == 1
    assert "the engine failed in phase=pool" in log
    assert "DefaultCPUAllocator: can't allocate memory: you tried to allocate 102400000 bytes" in log


def test_out_of_memory_in_the_middle_of_a_prompt(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "256Mi", "--mem-fraction", "0.72", "--device", "cpu")
    with server(tmp_path / "log", *arguments) as running:
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{running.url}/v1/completions", json={"prompt": [11] * 16000}, timeout=120)
        assert running.process.wait(60) == 1
    log = running.log.read_text()
    assert "the engine failed in phase=prefill request=1" in log
    assert "DefaultCPUAllocator: can't allocate memory: you tried to allocate" in log


def test_no_room_for_a_pool(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "64Mi", "--mem-fraction", "0.2", "--device", "cpu")
    code, log = finished(tmp_path / "log", "--port", "0", *arguments)
    assert code == 2
    assert "no room for a pool" in one_line(log)


def test_a_port_in_use(checkpoints: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, log = finished(tmp_path / "log", "--model", str(checkpoints / "gqa"), "--port", port)
    assert code == 2
    assert f"127.0.0.1:{port}: cannot listen" in one_line(log)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    fields = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "perpetuum"}, "perpetuum"),
        ({"model_type": None}, "model_type"),
        ({"model_type": "t5"}, "t5"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"num_hidden_layers": 5}, "missing"),
        ({"intermediate_size": 500}, "other shapes"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_a_config_that_cannot_be_served(checkpoints: Path, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoints / "gqa", folder)
    edit(folder, **changes)
    code, log = finished(tmp_path / "log", "--model", str(folder), "--port", "0", "--pool-tokens", "100")
    assert code == 2
    assert says in one_line(log)


def test_a_cache_that_the_pool_cannot_hold(tmp_path: Path) -> None:
    config = MambaConfig(
        vocab_size=tiny.VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, state_size=4
    )
    tiny.write(tmp_path / "mamba", config)
    code, log = finished(tmp_path / "log", "--model", str(tmp_path / "mamba"), "--port", "0", "--context", "100")
    assert code == 2
    assert "mamba layer 0" in one_line(log)


@pytest.mark.parametrize(("name", "says"), [("nothing", "no such folder"), (".", "config.json: no such file")])
def test_no_model_there(tmp_path: Path, name: str, says: str) -> None:
    code, log = finished(tmp_path / "log", "--model", str(tmp_path / name), "--port", "0")
    assert code == 2
    assert says in one_line(log)


def test_a_wrong_flag_ends_it(tmp_path: Path) -> None:
    code, log = finished(tmp_path / "log", "--model", "x", "--mem-fraction", "0.5", "--pool-tokens", "5")
    assert code == 2
    assert "not allowed with" in log


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_its_libraries_it_names_the_command(missing: str) -> None:
    start = "runpy.run_module('draftmark.embedded', run_name='__main__')"
    code = f"import runpy, sys; sys.modules['{missing}'] = None; {start}"
    ended = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.strip() == f"draftmark.embedded: {missing} is not installed; pip install 'draftmark[local]'"


def test_it_is_not_healthy_while_it_loads() -> None:
    api = Api(name="tiny", metrics=Metrics(), info={})

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=api.application())
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            answers = [await client.get(path) for path in ("/health", "/v1/models", "/server_info", "/metrics")]
            answers.append(await client.post("/v1/completions", json={"prompt": "x"}))
        assert all("loaded" in answer.json()["error"]["message"] for answer in answers)
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [503] * 5
