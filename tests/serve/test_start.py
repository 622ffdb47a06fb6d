"""Starts of a real process: how they end, and that nothing is left behind."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Capabilities, Requirement
from draftmark.errors import BadInput
from draftmark.ledger import Entry, close
from draftmark.serve import (
    Activity,
    Event,
    HungUp,
    PhaseEntered,
    Place,
    Prediction,
    Started,
    StartFailed,
    StartRefused,
    interruptible,
    records,
    serve,
)
from draftmark.serve.process import EngineProcess, Exit
from draftmark.serve.watch import Watch
from draftmark.trial import Crashed, OutOfMemory, Stopped, TimedOut
from draftmark.units import GIB, MIB, Bytes
from tests.serve.toy_adapter import ToyAdapter, ToyReader


def behaving(configuration: Configuration, behaviour: str) -> Configuration:
    return msgspec.structs.replace(configuration, flags=("--behaviour", behaviour))


def left_of(pid: int) -> list[psutil.Process]:
    return EngineProcess(pid, 0.0).members()


def failed(configuration: Configuration, behaviour: str, **patience: float) -> tuple[StartFailed, int]:
    events: list[Event] = []
    with pytest.raises(StartFailed) as caught:
        serve(
            behaving(configuration, behaviour),
            adapter=ToyAdapter(),
            patience=patience or {"init": 30, "weights": 30},  # type: ignore[arg-type]
            progress=events.append,
        )
    return caught.value, next(event.pid for event in events if isinstance(event, Started))


def test_a_ready_server_states_its_pool_and_is_gone_afterwards(configuration: Configuration) -> None:
    events: list[Event] = []
    with serve(configuration, adapter=ToyAdapter(), progress=events.append) as server:
        assert server.pool is not None
        assert server.pool.tokens == 4096
        assert [record.name for record in records.running()] == [server.record.name]
        assert len(left_of(server.process.pid)) == 2
    assert left_of(server.process.pid) == []
    assert records.running() == ()
    assert isinstance(server.outcome, Stopped)
    assert [event.phase for event in events if isinstance(event, PhaseEntered)][:2] == ["init", "weights"]
    assert any(isinstance(event, Activity) and event.done == 0.5 for event in events)
    assert "pool tokens 4096" in Path(server.log_path).read_text()


def test_loading_has_a_rate_where_the_weights_are_predicted(configuration: Configuration) -> None:
    events: list[Event] = []
    entries = (Entry(account="weights", bytes=Bytes(3 * GIB), why="a test"),)
    prediction = Prediction(ledgers=(close(rank=0, capacity=Bytes(4 * GIB), entries=entries),))
    with serve(configuration, adapter=ToyAdapter(), prediction=prediction, progress=events.append):
        pass
    loading = next(event for event in events if isinstance(event, Activity) and event.done == 0.5)
    assert loading.rate is not None
    assert loading.remaining is not None
    assert loading.rate * loading.remaining == pytest.approx(1.5 * GIB)


def test_py_spy_reads_a_hang_without_ending_it(configuration: Configuration) -> None:
    if not (shutil.which("py-spy") or Path(sys.executable).with_name("py-spy").exists()):
        pytest.skip("py-spy is not installed")
    error, _ = failed(configuration, "hang", weights=1.0, init=30.0)
    outcome = error.trial.outcome
    assert isinstance(outcome, TimedOut)
    assert outcome.stack is not None
    assert outcome.stack.startswith("Process ")
    assert error.trial.log is not None
    assert "Fatal Python error" not in Path(error.trial.log).read_text()


def test_a_server_without_a_stated_pool_is_ready_with_a_note(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmark.serve.server._POOL_WITHIN", 0.5)
    events: list[Event] = []
    with serve(behaving(configuration, "silent-pool"), adapter=ToyAdapter(), progress=events.append) as server:
        assert server.pool is None
    assert any("how large its pool is" in getattr(event, "text", "") for event in events)


def test_out_of_memory_keeps_the_allocators_numbers(configuration: Configuration) -> None:
    error, pid = failed(configuration, "oom")
    outcome = error.trial.outcome
    assert isinstance(outcome, OutOfMemory)
    assert (outcome.phase, outcome.tried, outcome.free) == ("weights", 896 * MIB, 893 * MIB)
    assert outcome.reserved_unallocated == round(1.4 * 1024) * MIB or outcome.reserved_unallocated == round(1.4 * 2**30)
    assert outcome.private_pools == 626 * MIB
    assert error.exit_code == 3
    assert error.trial.log is not None
    assert error.trial.log in str(error)
    assert left_of(pid) == []


@pytest.mark.parametrize(
    ("behaviour", "exit_code", "ended_by", "message"),
    [
        ("crash", 1, None, "ValueError: the weights are upside down"),
        ("segfault", None, "SIGSEGV", "Fatal Python error: Segmentation fault"),
        ("kill", None, "SIGKILL", "loading: 100%|##########| 2/2"),
    ],
)
def test_a_crash_names_phase_signal_and_last_words(
    configuration: Configuration, behaviour: str, exit_code: int | None, ended_by: str | None, message: str
) -> None:
    error, pid = failed(configuration, behaviour)
    outcome = error.trial.outcome
    assert isinstance(outcome, Crashed)
    assert (outcome.phase, outcome.exit_code, outcome.signal) == ("weights", exit_code, ended_by)
    assert outcome.message == message
    assert left_of(pid) == []
    assert records.running() == ()


def test_a_kill_by_the_oom_killer_is_told_by_the_control_group(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr("draftmark.serve.server.oom_kills", lambda: next(counts))
    error, _ = failed(configuration, "kill")
    outcome = error.trial.outcome
    assert isinstance(outcome, Crashed)
    assert outcome.signal == "SIGKILL"
    assert outcome.message.startswith("the kernel's OOM killer ended a process")


@pytest.mark.parametrize("behaviour", ["hang", "stubborn-hang"])
def test_a_hang_ends_with_its_stack(
    configuration: Configuration, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmark.serve.server.GRACE", 1.0)
    error, pid = failed(configuration, behaviour, weights=1.0, init=30.0)
    outcome = error.trial.outcome
    assert isinstance(outcome, TimedOut)
    assert outcome.phase == "weights"
    assert outcome.stack is not None
    assert "misbehave" in outcome.stack
    assert left_of(pid) == []


def test_without_py_spy_the_fault_handler_gives_the_stack(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmark.serve.stack._by_py_spy", lambda process: "")
    error, _ = failed(configuration, "hang", weights=1.0, init=30.0)
    outcome = error.trial.outcome
    assert isinstance(outcome, TimedOut)
    assert outcome.stack is not None
    assert "toy_engine.py" in outcome.stack
    assert "misbehave" in outcome.stack


def test_death_after_ready_is_noticed(configuration: Configuration) -> None:
    with serve(behaving(configuration, "late-oom"), adapter=ToyAdapter()) as server:
        deadline = time.monotonic() + 20
        while (died := server.check()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
    assert isinstance(died, OutOfMemory)
    assert died.phase == "prefill"
    assert server.outcome == died
    assert records.running() == ()


def interrupt_after(seconds: float, number: signal.Signals, times: int = 1, apart: float = 0.5) -> threading.Thread:
    def send() -> None:
        time.sleep(seconds)
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(apart)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_the_start_ends_the_engine(configuration: Configuration, number: signal.Signals) -> None:
    events: list[Event] = []
    thread = interrupt_after(1.5, number)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        serve(behaving(configuration, "hang"), adapter=ToyAdapter(), progress=events.append)
    thread.join()
    pid = next(event.pid for event in events if isinstance(event, Started))
    assert left_of(pid) == []
    assert records.running() == ()


def test_a_second_interrupt_kills_at_once(configuration: Configuration) -> None:
    events: list[Event] = []
    thread = interrupt_after(1.5, signal.SIGINT, times=2, apart=1.0)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        serve(behaving(configuration, "stubborn-hang"), adapter=ToyAdapter(), progress=events.append)
    thread.join()
    assert time.monotonic() - began < 10, "the engine ignores SIGTERM, so only the second interrupt ends it this soon"
    assert left_of(next(event.pid for event in events if isinstance(event, Started))) == []


def test_a_closed_terminal_leaves_the_engine_to_be_found_again(configuration: Configuration) -> None:
    thread = interrupt_after(1.5, signal.SIGHUP)
    with interruptible(), pytest.raises(HungUp):
        serve(behaving(configuration, "hang"), adapter=ToyAdapter())
    thread.join()
    (record,) = records.running()
    process = EngineProcess(record.pid, record.created)
    assert process.exit() is None
    process.stop(grace=5)
    assert left_of(record.pid) == []


def test_a_port_in_use_is_named_with_its_owner(configuration: Configuration) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=rf"port {port} is in use by process {os.getpid()}"):
            serve(configuration, adapter=ToyAdapter(), place=Place(port=port))


def test_an_engine_that_is_not_installed_comes_with_its_command(configuration: Configuration) -> None:
    class Missing(ToyAdapter):
        requirement = Requirement(modules=("nonsense_engine",), distribution="pip", install="pip install nonsense")

    with pytest.raises(BadInput, match=r"missing: nonsense_engine\); install it: pip install nonsense"):
        serve(configuration, adapter=Missing())


def test_a_python_that_does_not_exist(configuration: Configuration) -> None:
    with pytest.raises(BadInput, match="name a Python with --python"):
        serve(configuration, adapter=ToyAdapter(), place=Place(python="/no/such/python"))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/model", "nowhere"])
def test_no_such_model(name: str) -> None:
    with pytest.raises(BadInput, match="no such model"):
        serve(Configuration(engine="embedded", model=name), adapter=ToyAdapter())


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no config\.json"):
        serve(Configuration(engine="embedded", model=str(tmp_path)), adapter=ToyAdapter())


def test_a_log_folder_that_cannot_be_written(configuration: Configuration, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="no log can be written there"):
        serve(configuration, adapter=ToyAdapter(), place=Place(logs=tmp_path / "file" / "logs"))


def test_a_full_disk_is_noted_once(configuration: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmark.serve.server._DISK_LEFT", 1 << 62)
    events: list[Event] = []
    with serve(configuration, adapter=ToyAdapter(), progress=events.append) as server:
        server.check()
    assert sum("the disk is full" in getattr(event, "text", "") for event in events) == 1


class RefusingAdapter(ToyAdapter):
    capabilities = Capabilities(bad_input_exit=2)


def test_an_engine_that_refuses_its_input_is_bad_input(configuration: Configuration) -> None:
    frobbed = msgspec.structs.replace(configuration, flags=("--frob",))
    with pytest.raises(StartRefused, match="unrecognized arguments: --frob") as refused:
        serve(frobbed, adapter=RefusingAdapter())
    assert isinstance(refused.value.trial.outcome, Crashed)
    with pytest.raises(StartFailed):
        serve(frobbed, adapter=ToyAdapter())


def test_a_state_folder_that_cannot_be_written(
    configuration: Configuration, state_folder: Path, tmp_path: Path
) -> None:
    state_folder.mkdir()
    (state_folder / "draftmark").write_text("a file where a folder should be")
    with pytest.raises(BadInput, match="record of a running engine cannot be written"):
        serve(configuration, adapter=ToyAdapter(), place=Place(logs=tmp_path / "logs"))


def test_a_record_that_cannot_be_written_ends_the_engine(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(psutil.Process().children())
    started: set[psutil.Process] = set()

    def full(path: Path, data: bytes) -> int:
        started.update(set(psutil.Process().children()) - before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BadInput, match="No space left on device"):
        serve(configuration, adapter=ToyAdapter(), place=Place(logs=tmp_path / "logs"))
    assert len(started) == 1
    assert not any(process.is_running() for process in started)


STARTER = """
import sys, time
import msgspec
from draftmark.configuration import Configuration
from draftmark.serve import serve
from tests.serve.toy_adapter import ToyAdapter, ToyReader
server = serve(
    Configuration(engine="embedded", model=sys.argv[1], device="cpu"),
    adapter=ToyAdapter(),
    bound=sys.argv[2] == "bound",
)
print(server.record.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's death")
@pytest.mark.parametrize("how", ["bound", "free"])
def test_a_bound_engine_dies_with_a_killed_draftmark(model: str, how: str) -> None:
    argv = [sys.executable, "-c", STARTER, model, how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    until = time.monotonic() + 3
    try:
        while (alive := psutil.pid_exists(pid)) and time.monotonic() < until:
            time.sleep(0.1)
        assert alive == (how == "free")
    finally:
        EngineProcess(pid, 0.0).kill()  # also what the engine itself had started


@pytest.mark.parametrize("noise", [0, 1, 100])
def test_the_reason_is_found_before_what_an_end_leaves_behind(tmp_path: Path, noise: int) -> None:
    log = tmp_path / "engine.log"
    log.write_text("ValueError: upside down\n" + noise * ' - leaked function "get_int32"\n')
    watch = Watch(str(log), ToyReader(str(log)), lambda _: None)
    watch.finish()
    died = watch.ended(Exit(code=1))
    watch.close()
    assert isinstance(died, Crashed)
    assert died.message == "ValueError: upside down"
