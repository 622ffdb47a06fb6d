import json
import subprocess
import sys
from pathlib import Path

import pytest

from draftmark.selftest.model import Fault, Setup
from draftmark.selftest.process import ground_truth
from draftmark.selftest.schedule import Pace


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
