import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftmark.selftest.model import Fault, Setup
from draftmark.selftest.process import ground_truth
from draftmark.selftest.schedule import Pace
from draftmark.store import Store


def draftmark(store: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "draftmark", *arguments, "--store", str(store)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_sweep_is_shown_kept_and_gone_on_with(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with ground_truth(Setup(pace=Pace(first=0.01, step=0.001), context=1000)) as server:
        first = draftmark(store, "sweep", "--url", server.url, "--depths", "100,200,2k", "--repeats", "1")
        assert first.returncode == 0, first.stderr
        assert "the largest that fits is 968" in " ".join(first.stdout.split())
        server.truth()
        again = draftmark(store, "sweep", "--url", server.url, "--depths", "100,200,400", "--resume", "1", "--json")
        assert again.returncode == 0, again.stderr
        assert {truth.prompt_tokens for truth in server.truth()} >= {400}
    result = json.loads(again.stdout)
    assert result["run"] == 1
    assert [row["figures"]["prompt_tokens"] for row in result["points"]] == [100, 200, 400]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--url", "http://127.0.0.1:9"), 2, "does not answer"),
        (("--url", "http://127.0.0.1:9", "--depths", "1x"), 2, "--depths: '1x' is not a number of tokens"),
        (("--url", "http://127.0.0.1:9", "--concurrency", "0"), 2, "--concurrency"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    result = draftmark(tmp_path / "runs.db", "sweep", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_server_that_dies_is_diagnosed_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "2026-01-01 00:00:00 INFO server_args=ServerArgs(model_path='m')\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97"
        " GiB of which 893.00 MiB is free. Process 1 has 94.0 GiB memory in use. Of the allocated memory 90.0 GiB is"
        " allocated by PyTorch, and 1.40 GiB is reserved by PyTorch but unallocated.\n"
    )
    fault = Fault(kind="die", requests=4, chunks=3)
    with ground_truth(Setup(pace=Pace(first=0.01, step=0.001), fault=fault)) as server:
        arguments = ("--depths", "100,200", "--repeats", "1", "--max-repeats", "1", "--log", str(log))
        result = draftmark(tmp_path / "runs.db", "sweep", "--url", server.url, *arguments)
    assert result.returncode == 3
    assert "the sweep stopped: dead: " in result.stderr
    assert "--resume 1" in result.stderr
    assert "896" in result.stdout, "what the log says of the failed allocation"
    assert "100" in result.stdout, "the point that was finished"


def test_an_interrupt_keeps_everything(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with ground_truth(Setup(pace=Pace(first=0.3, step=0.001))) as server:
        command = [sys.executable, "-m", "draftmark", "sweep", "--url", server.url, "--store", str(store)]
        command += ["--depths", "100,200,300", "--repeats", "1", "--max-repeats", "1", "--warm-up", "0"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not any(truth.prompt_tokens == 200 for truth in server.truth()):
            time.sleep(0.01)
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=30)
    assert client.returncode == 130
    assert errors.endswith("interrupted: finished points are kept; go on with --resume 1\n")
    with Store(store) as opened:
        (run,) = opened.runs()
        points = opened.points(run.id)
    assert run.status == "interrupted"
    assert [(record.point.asked, record.finished) for record in points] == [(100, True)]
