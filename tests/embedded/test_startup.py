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
from typing import Any

import httpx
import pytest
from transformers import MambaConfig

from draftmark.embedded import __main__, checkpoint, tiny
from draftmark.embedded.loading import Phases, load
from draftmark.embedded.options import parse
from draftmark.embedded.server import still_loading
from draftmark.errors import BadInput
from tests.embedded.process import finished, server, start


def one_line(log: str) -> str:
    """The only line that is no progress; fails where there are more, as of a traceback."""
    lines = [line for line in log.splitlines() if " INFO " not in line]
    assert len(lines) == 1, log
    return lines[0]


@pytest.mark.engine
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(checkpoints: Path, tmp_path: Path, how: signal.Signals) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "256Mi", "--device", "cpu")
    body = {"prompt": [11] * 10, "max_tokens": 6000, "ignore_eos": True}
    with server(tmp_path / "log", *arguments) as running, ThreadPoolExecutor() as pool:
        url = f"{running.url}/v1/completions"
        whole = pool.submit(httpx.post, url, json=body, timeout=60)
        while "admitted" not in running.log.read_text():
            time.sleep(0.01)
        with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as answer:
            next(answer.iter_lines())
            assert running.end(how) == 0
        assert whole.result().status_code == 503
    log = running.log.read_text()
    assert "phase=stopping" in log
    assert "Traceback" not in log


@pytest.mark.engine
def test_a_signal_while_it_loads(checkpoints: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(log, "--model", str(checkpoints / "gqa"), "--port", "0", "--memory", "256Mi", "--device", "cpu")
    while " start " not in log.read_text() and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 0
    assert "phase=stopping" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.engine
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


def load_here(folder: Path, *arguments: str) -> dict[str, Any]:
    """What a server on `folder` would say of itself, loaded in this process."""
    options = parse(["--model", str(folder), "--device", "cpu", *arguments])
    config = checkpoint.read_config(folder, context=options.context)
    return load(options, config, {"device": "cpu", "served_model_name": "tiny"}, Phases()).info


def test_the_pool_is_no_larger_than_can_be_used(checkpoints: Path) -> None:
    info = load_here(checkpoints / "mla", "--max-running", "2", "--context", "1000")
    assert info["pool_tokens"] == 2000


@pytest.mark.engine
def test_out_of_memory_while_the_pool_is_reserved(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "128Mi", "--pool-tokens", "100k", "--device", "cpu")
    code, log = finished(tmp_path / "log", "--port", "0", *arguments)
    assert code == 1
    assert "the engine failed in phase=pool" in log
    assert "DefaultCPUAllocator: can't allocate memory: you tried to allocate 102400000 bytes" in log


@pytest.mark.engine
def test_out_of_memory_in_the_middle_of_a_prompt(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "256Mi", "--mem-fraction", "0.72", "--device", "cpu")
    with server(tmp_path / "log", *arguments) as running:
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{running.url}/v1/completions", json={"prompt": [11] * 16000}, timeout=120)
        assert running.process.wait(60) == 1
    log = running.log.read_text()
    assert "the engine failed in phase=prefill request=1" in log
    assert "DefaultCPUAllocator: can't allocate memory: you tried to allocate" in log


@pytest.mark.engine
def test_no_room_for_a_pool(checkpoints: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(checkpoints / "gqa"), "--memory", "64Mi", "--mem-fraction", "0.2", "--device", "cpu")
    code, log = finished(tmp_path / "log", "--port", "0", *arguments)
    assert code == 2
    assert "no room for a pool" in one_line(log)


@pytest.mark.engine
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


def refusal(folder: Path, *arguments: str) -> str:
    """The line that says why a checkpoint is not served."""
    with pytest.raises(BadInput) as refused:
        load_here(folder, "--pool-tokens", "100", *arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


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
    assert says in refusal(folder)


def test_a_cache_that_the_pool_cannot_hold(tmp_path: Path) -> None:
    config = MambaConfig(
        vocab_size=tiny.VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, state_size=4
    )
    tiny.write(tmp_path / "mamba", config)
    assert "mamba layer 0" in refusal(tmp_path / "mamba", "--context", "100")


@pytest.mark.parametrize(("name", "says"), [("nothing", "no such folder"), (".", "config.json: no such file")])
def test_no_model_there(tmp_path: Path, name: str, says: str) -> None:
    assert says in refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--mem-fraction", "0.5", "--pool-tokens", "5"), "not allowed with"),
        (("--mem-fraction", "1.5"), "1.5 is not above 0 and at most 1"),
        (("--chunk", "0"), "0 is less than 1"),
        (("--memory", "much"), "'much' is not a number of tokens"),
    ],
)
def test_a_wrong_flag_ends_it(wrong: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--model", "x", *wrong])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_its_libraries_it_names_the_command(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "draftmark.embedded.server")
    assert __main__.main() == 2
    said = capsys.readouterr().err.strip()
    assert said == f"draftmark.embedded: {missing} is not installed; pip install 'draftmark[local]'"


def test_it_is_not_healthy_while_it_loads() -> None:
    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=still_loading)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            answers = [await client.get(path) for path in ("/health", "/v1/models", "/server_info", "/metrics")]
            answers.append(await client.post("/v1/completions", json={"prompt": "x"}))
        assert all("loaded" in answer.json()["error"]["message"] for answer in answers)
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [503] * 5
