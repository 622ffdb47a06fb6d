"""`draftmark serve`, `stop`, `inspect` and `diagnose` as a user runs them, on the embedded engine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark import __version__
from draftmark.planner.history import past_starts
from draftmark.serve.process import EngineProcess
from draftmark.serve.records import Record
from draftmark.store import Store
from draftmark.trial import Crashed, OutOfMemory, Ready, Stopped

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (find_spec("torch") and find_spec("transformers")), reason="needs torch and transformers: draftmark[local]"
    ),
]


class Shell:
    """Runs draftmark with a state folder and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "runs.db"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "DRAFTMARK_STORE": str(self.store)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "draftmark", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            out, error = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def running(self) -> list[Record]:
        done = self.run("stop", "--list", "--json")
        return msgspec.json.decode(done.stdout, type=list[Record])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    for record in made.running():
        EngineProcess(record.pid, record.created).kill()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from draftmark.embedded import tiny

    folder = tmp_path_factory.mktemp("tiny") / "gqa"
    tiny.write(folder, tiny.gqa())
    return str(folder)


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON that `serve` prints when the engine is ready."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            break
    found: dict[str, Any] = json.loads(text)
    return found


def left_of(record: Record) -> list[int]:
    return [process.pid for process in EngineProcess(record.pid, record.created).members()]


def test_ctrl_c_ends_the_engine_and_keeps_the_trial(shell: Shell, model: str) -> None:
    with shell.start("serve", model, "--pool-tokens", "4096", "--json") as process:
        shown = ready(process)
        (record,) = shell.running()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: the engine is stopped, its log and the trial are kept" in error
    assert shown["trial"]["pool"]["tokens"] == 4096
    assert shown["trial"]["predicted_pool"]["tokens"] == 4096
    assert shown["trial"]["observed"][0]["entries"]
    assert left_of(record) == []
    with Store(shell.store) as store:
        assert [run.status for run in store.runs()] == ["interrupted"]
        (trial,) = store.trials()
        (past,) = past_starts(store)
    assert past.architecture, "what was served teaches the planner"
    assert past.device is not None
    assert isinstance(trial.outcome, Stopped)
    assert trial.log is not None
    assert "phase=ready" in Path(trial.log).read_text()


def test_an_engine_outlives_a_killed_draftmark_and_is_inspected_and_stopped(shell: Shell, model: str) -> None:
    with shell.start("serve", model, "--pool-tokens", "4096", "--json") as process:
        ready(process)
        process.kill()
    time.sleep(0.5)
    with Store(shell.store) as store:
        (trial,) = store.trials()
    assert isinstance(trial.outcome, Ready), "what was known when Draftmark was killed is kept"
    (record,) = shell.running()
    seen = json.loads(shell.run("inspect", record.url, "--json").stdout)
    assert (seen["state"]["engine"], seen["pool"]["tokens"], seen["log"]) == ("embedded", 4096, record.log)
    assert {entry["account"] for entry in seen["ledgers"][0]["entries"]} >= {"weights", "pool", "free"}
    text = shell.run("inspect", record.url).stdout
    assert "4,096" in text
    assert "headroom of the worst rank" in text
    assert shell.run("stop", record.url).returncode == 0
    assert left_of(record) == []
    with Store(shell.store) as store:
        (trial,) = store.trials()
        assert [run.status for run in store.runs()] == ["done"]
    assert isinstance(trial.outcome, Stopped)
    assert trial.handle is not None
    assert trial.handle.pid == record.pid


def test_what_only_the_engine_finds_wrong_is_bad_input_too(shell: Shell, model: str) -> None:
    folder = shell.folder / "renamed"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "perpetuum"}))
    failed = shell.run("serve", str(folder))
    assert failed.returncode == 2
    line = failed.stderr.splitlines()[-1]
    assert line.startswith("draftmark: the engine: ")
    assert "perpetuum" in line
    assert failed.stdout == ""
    with Store(shell.store) as store:
        (trial,) = store.trials()
        assert [run.status for run in store.runs()] == ["failed"]
    assert isinstance(trial.outcome, Crashed)
    assert trial.outcome.exit_code == 2


def test_a_detached_run_stays_open_until_the_engine_is_stopped(shell: Shell, model: str) -> None:
    started = shell.run("serve", model, "--memory", "256Mi", "--detach")
    assert started.returncode == 0
    assert "Ctrl-C" not in started.stdout
    assert "draftmark stop" in started.stdout
    with Store(shell.store) as store:
        (run,) = store.runs()
    assert (run.status, run.ended) == (None, None)
    assert run.environment.engine_version == __version__
    assert shell.run("stop").returncode == 0
    with Store(shell.store) as store:
        (run,), (trial,) = store.runs(), store.trials()
    assert run.status == "done"
    assert isinstance(trial.outcome, Stopped)
    assert trial.ended is not None


def test_detached_attached_and_ended_by_sigterm(shell: Shell, model: str) -> None:
    started = shell.run("serve", model, "--pool-tokens", "4096", "--detach")
    assert started.returncode == 0
    (record,) = shell.running()
    assert record.url in started.stdout
    with shell.start("serve", "--attach", record.name, "--json") as process:
        shown = ready(process)["trial"]
        assert shown["pool"]["tokens"] == 4096
        assert shown["predicted_pool"]["tokens"] == 4096, "kept by the start, shown again"
        assert shown["predicted"]
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert left_of(record) == []
    with Store(shell.store) as store:
        assert [run.status for run in store.runs()] == ["done"]


def test_a_closed_terminal_leaves_the_engine(shell: Shell, model: str) -> None:
    with shell.start("serve", model, "--pool-tokens", "4096", "--json") as process:
        ready(process)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    (record,) = shell.running()
    assert left_of(record) != []
    assert shell.run("stop").returncode == 0
    assert left_of(record) == []


def test_a_pool_that_does_not_fit_is_diagnosed_at_once(shell: Shell, model: str) -> None:
    failed = shell.run("serve", model, "--pool-tokens", "40G", "--json")
    assert failed.returncode == 3
    shown = json.loads(failed.stdout)
    assert shown["trial"]["outcome"]["type"] == "out of memory"
    assert shown["trial"]["outcome"]["phase"] == "pool"
    assert [finding["code"] for finding in shown["findings"]] == ["pool-oom"]
    assert failed.stderr.splitlines()[-1].startswith("draftmark: ")
    assert "draftmark diagnose" not in failed.stderr, "its findings are shown"
    with Store(shell.store) as store:
        (run,) = store.runs()
        (trial,) = store.trials()
        assert [finding.code for finding in store.findings(run.id)] == ["pool-oom"]
    assert run.status == "failed"
    assert isinstance(trial.outcome, OutOfMemory)
    again = shell.run("diagnose", "--trial", str(trial.id))
    assert "lower --pool-tokens" in again.stdout
    assert shell.running() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve",), "no model given"),
        (("serve", "./nowhere"), "no such model"),
        (("serve", "MODEL", "--chunk", "0"), "--chunk: the embedded engine takes 1 or more, not 0"),
        (("serve", "MODEL", "--dtype", "fp4_e2m1"), "--dtype: the embedded engine does not serve in"),
        (("serve", "MODEL", "--memory", "lots"), "--memory: 'lots' is not a number of bytes"),
        (("serve", "MODEL", "--mem-fraction", "0.5", "--pool-tokens", "9k"), "exclude each other"),
        (("serve", "MODEL", "--", "--frob"), "--frob: the embedded engine has no such flag"),
        (("serve", "MODEL", "--", "--chunk", "0"), "--chunk: the embedded engine takes 1 or more, not 0"),
        (("serve", "MODEL", "--engine", "vllm", "--memory", "1Gi"), "--memory: only the embedded engine"),
        (("serve", "BROKEN"), "not JSON"),
        (("serve", "UNKNOWN"), "Perpetuum"),
        (("serve", "--attach", "nobody"), "no engine that Draftmark started is running"),
        (("stop",), "no engine that Draftmark started is running"),
        (("diagnose",), "no log given"),
        (("diagnose", "/no/such.log"), "/no/such.log: cannot be read"),
        (("diagnose", "--trial", "99"), "no such trial"),
        (("inspect", "http://127.0.0.1:9"), "no server answers"),
        (("serve", "m", "--env", "X"), "'X' is not NAME=VALUE"),
        (("serve", "m", "--launcher", "docker 'run"), "check its quotes"),
    ],
)
def test_bad_input_is_one_line(shell: Shell, model: str, arguments: tuple[str, ...], words: str) -> None:
    folders = {"MODEL": model, "BROKEN": str(shell.folder / "broken"), "UNKNOWN": str(shell.folder / "unknown")}
    shutil.copytree(model, folders["BROKEN"])
    (shell.folder / "broken" / "config.json").write_text('{"architectures": [')
    shutil.copytree(model, folders["UNKNOWN"])
    config = json.loads((Path(model) / "config.json").read_text())
    (shell.folder / "unknown" / "config.json").write_text(json.dumps({**config, "architectures": ["Perpetuum"]}))
    failed = shell.run(*(folders.get(argument, argument) for argument in arguments))
    assert failed.returncode == 2
    assert not (shell.folder / "state" / "draftmark" / "logs").exists(), "nothing was started"
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("draftmark: ")]
    assert words in line


def test_diagnose_reads_standard_input(shell: Shell) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "draftmark", "diagnose", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=shell.environment,
    ) as process:
        out, _ = process.communicate(b"torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n")
    assert process.returncode == 0
    assert b"[illegal-access, certain]" in out
