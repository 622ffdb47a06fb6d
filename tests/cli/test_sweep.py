import json
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from draftmark.selftest.model import Fault, Setup
from draftmark.selftest.process import ground_truth
from draftmark.selftest.schedule import Pace, Shape
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
        again = draftmark(store, "sweep", "--depths", "100,200,400", "--resume", "1", "--json")
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
    assert result.stderr.splitlines()[-1].startswith("draftmark: ")
    assert [line for line in result.stderr.splitlines() if not line.startswith("Asking ")] == [
        result.stderr.splitlines()[-1]
    ]


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_and_shows_everything(tmp_path: Path, number: int) -> None:
    store = tmp_path / "runs.db"
    with ground_truth(Setup(pace=Pace(first=0.3, step=0.001))) as server:
        command = [sys.executable, "-m", "draftmark", "sweep", "--url", server.url, "--store", str(store)]
        command += ["--depths", "100,200,300", "--repeats", "1", "--max-repeats", "1", "--warm-up", "0"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not any(truth.prompt_tokens == 200 for truth in server.truth()):
            time.sleep(0.01)
        client.send_signal(number)
        shown, errors = client.communicate(timeout=30)
    assert client.returncode == 128 + number
    assert errors.endswith(f"interrupted: run 1 is kept; go on with `draftmark sweep --resume 1 --store {store}`\n")
    assert "100" in shown
    assert "Traceback" not in errors
    with Store(store) as opened:
        (run,) = opened.runs()
        points = opened.points(run.id)
    assert run.status == "interrupted"
    assert [(record.point.asked, record.finished) for record in points] == [(100, True)]


NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("--rate", "nan"), "--rate"),
        (("--rate", "inf"), "--rate"),
        (("--rate", "-1"), "--rate"),
        (("--rate", "0.0000001"), "--rate"),
        (("--rate", "1", "--requests", "100000"), "--rate"),
        (("--rate", "1,2", "--concurrency", "4"), "--rate"),
        (("--point-time", "-1"), "--point-time"),
        (("--point-time", "nan"), "--point-time"),
        (("--timeout", "nan"), "--timeout"),
        (("--timeout", "0"), "--timeout"),
        (("--stall", "0"), "--stall"),
        (("--stall", "inf"), "--stall"),
        (("--repeats", "5", "--max-repeats", "2"), "--max-repeats"),
        (("--output", "0"), "--output"),
        (("--output", "16,32"), "--output"),
        (("--precision", "nan"), "--precision"),
        (("--precision", "inf"), "--precision"),
        (("--concurrency", "100000000"), "--concurrency"),
        (("--requests", "100000000"), "--requests"),
        (("--api-key", "é"), "--api-key"),
        (("--api-key", "a\nX-Other: b"), "--api-key"),
        (("--model", b"\xff"), "--model"),
        (("--log", "/dev/urandom"), "--log"),
        (("--url", "http://127.0.0.1:8\u00e9"), "--url"),
        (("--url", "http://127.0.0.1:99999"), "--url"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], flag: str
) -> None:
    result = draftmark(tmp_path / "runs.db", "sweep", "--url", NOWHERE, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("draftmark: ")
    assert flag in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_sweep_of_which_no_depth_fits_is_bad_input_and_no_run(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with ground_truth(Setup(pace=Pace(first=0.01, step=0.001), context=1000)) as server:
        result = draftmark(store, "sweep", "--url", server.url, "--depths", "20k,30k")
        nothing = draftmark(store, "sweep", "--url", server.url, "--output", "2000")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--depths: no depth can be sent" in result.stderr
    assert "the largest that fits is 968" in result.stderr
    assert nothing.returncode == 2
    assert "no depth fits" in nothing.stderr
    with Store(store) as opened:
        assert opened.runs() == ()


def test_a_sweep_without_a_valid_point_is_a_failed_check(tmp_path: Path) -> None:
    fault = Fault(kind="lie", tokens=3, requests=2)
    with ground_truth(Setup(pace=Pace(first=0.01, step=0.001), fault=fault)) as server:
        result = draftmark(
            tmp_path / "runs.db", "sweep", "--url", server.url, "--depths", "100", "--api", "completions"
        )
    assert result.returncode == 1
    assert "no point is valid: asked for 100 tokens, the server counted 103" in result.stderr
    with Store(tmp_path / "runs.db") as opened:
        assert opened.run(1).status == "failed"


def test_a_run_is_gone_on_with_as_it_was_begun(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    setup = Setup(pace=Pace(first=0.01, step=0.001), fault=Fault(kind="refuse", requests=5), api_key="sesame")
    with ground_truth(setup) as server:
        begun = ("--depths", "100,200", "--output", "8", "--repeats", "1", "--max-repeats", "1", "--warm-up", "2")
        first = draftmark(store, "sweep", "--url", server.url, "--api-key", "sesame", *begun)
        assert first.returncode == 3, first.stderr
        typed = re.findall(r"`draftmark (.*?)`", first.stderr)[-1]
        assert typed == f"sweep --resume 1 --store {store} --api-key KEY"
        server.control(msgspec.structs.replace(setup, fault=None))
        server.truth()
        again = draftmark(store, *shlex.split(typed.replace("KEY", "sesame"))[:3], "--api-key", "sesame", "--json")
        assert again.returncode == 0, again.stderr
        rows = json.loads(again.stdout)["points"]
        assert [(row["point"]["asked"], row["point"]["output"]) for row in rows] == [(100, 8), (200, 8)]
        other = draftmark(store, "sweep", "--resume", "1", "--url", NOWHERE)
        assert (other.returncode, other.stdout) == (2, "")
        assert f"run 1 was measured at {server.url}, not {NOWHERE}" in other.stderr
        model = draftmark(store, "sweep", "--resume", "1", "--api-key", "sesame", "--model", "other")
        assert (model.returncode, model.stdout) == (2, "")
    with Store(store) as opened:
        assert opened.run(1).status == "done", "a refusal leaves the run as it was"
        assert "sesame" not in " ".join(opened.run(1).arguments)
    none = draftmark(store, "sweep", "--resume", "7")
    assert (none.returncode, none.stderr.count("\n")) == (2, 1)


def test_a_refused_request_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    setup = Setup(pace=Pace(first=0.01, step=0.001), context=1000, reports_context=False)
    with ground_truth(setup) as server:
        result = draftmark(tmp_path / "runs.db", "sweep", "--url", server.url, "--depths", "100,2k", "--repeats", "1")
    assert result.returncode == 2
    assert "exceed the limit of 1000" in result.stderr
    assert "--resume" not in result.stderr


def limited(command: list[str], resource_of: int, limits: tuple[int, int]) -> "subprocess.CompletedProcess[str]":
    """A command under a soft and a hard limit of one resource."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource_of, limits),
    )


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_full_disk_ends_a_sweep_with_what_was_kept(tmp_path: Path, json_wanted: bool) -> None:
    store = tmp_path / "runs.db"
    command = [sys.executable, "-m", "draftmark", "sweep", "--depths", "100,200,300,400,500,600", "--output", "600"]
    command += ["--repeats", "1", "--max-repeats", "1", "--store", str(store), *(["--json"] if json_wanted else [])]
    with ground_truth(Setup(pace=Pace(first=0.001, step=0.0))) as server:
        result = limited([*command, "--url", server.url], resource.RLIMIT_FSIZE, (180_000, 180_000))
    with Store(store, read_only=True) as opened:
        kept = [record.point.asked for record in opened.points(1) if record.finished]
    assert 0 < len(kept) < 6
    assert result.returncode == 2
    assert "the store cannot be used" in result.stderr.splitlines()[-1]
    assert f"run 1 is kept; go on with `draftmark sweep --resume 1 --store {store}`" in result.stderr
    if json_wanted:
        shown = json.loads(result.stdout)
        assert "the store cannot be used" in shown["stopped"]
        assert [row["point"]["asked"] for row in shown["points"]][: len(kept)] == kept
    else:
        assert all(f"│ {depth}" in result.stdout.replace("  ", "") for depth in kept)


@pytest.mark.parametrize(
    ("load", "shape", "advice"),
    [
        (("--concurrency", "2"), "plain", "explain"),
        (("--rate", "100", "--requests", "6"), "plain", "report"),
        ((), "no usage", "report"),
    ],
)
def test_what_is_advised_afterwards_can_be_done(
    tmp_path: Path, load: tuple[str, ...], shape: Shape, advice: str
) -> None:
    store = tmp_path / "runs.db"
    with ground_truth(Setup(pace=Pace(first=0.01, step=0.001), shape=shape)) as server:
        result = draftmark(store, "sweep", "--url", server.url, "--depths", "100,200,400", "--max-repeats", "3", *load)
    assert result.returncode == 0, result.stderr
    assert f"Run 1 is kept; `draftmark {advice}`" in result.stdout
    place = ("-o", str(tmp_path / "page.html")) if advice == "report" else ()
    assert draftmark(store, advice, *place).returncode == 0


@pytest.mark.parametrize(
    ("load", "hard", "code"),
    [
        (("--concurrency", "150"), 4096, 0),
        (("--concurrency", "150"), 120, 2),
        (("--rate", "500", "--requests", "150"), 4096, 0),
        (("--rate", "50", "--requests", "150"), 120, 0),
    ],
)
def test_as_many_connections_as_the_system_allows(tmp_path: Path, load: tuple[str, ...], hard: int, code: int) -> None:
    command = [sys.executable, "-m", "draftmark", "sweep", "--depths", "100", "--output", "4", "--warm-up", "0", *load]
    command += ["--repeats", "1", "--max-repeats", "1", "--store", str(tmp_path / "runs.db")]
    with ground_truth(Setup(pace=Pace(first=0.3, step=0.01))) as server:
        result = limited([*command, "--url", server.url], resource.RLIMIT_NOFILE, (100, hard))
    assert result.returncode == code, result.stderr
    if code:
        assert "150 requests at once need as many connections, and this process may open 56" in result.stderr
