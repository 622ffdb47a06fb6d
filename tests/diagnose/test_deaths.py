"""Processes that end by a signal: which one, in every engine's words, and only where nothing says more."""

import signal

import pytest

from tests.diagnose.logs import AFTER_WEIGHTS, OUT_OF_MEMORY, SERVING, VLLM, codes, moves, of

DIED = (  # SGLang 0.4.6, 0.5.15 and 0.5.23; vLLM 0.6.6, 0.10.2 and 0.32.0; containers
    "[2026-05-30 14:09:03] Exit code: {code}",
    "[2026-05-30 14:09:03] Scheduler or DataParallelController 4242 terminated with {code}",
    "[2026-05-30 14:09:03] Subprocess scheduler_0 (pid=42) crashed with exit code {code}. Triggering SIGQUIT for it",
    (
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), "
        "a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
    ),
    "ERROR 07-02 10:00:00 multiproc_worker_utils.py:123] Worker VllmWorkerProcess pid 42 died, exit code: {code}",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{'Engine': {code}}}",
    "RuntimeError: Process EngineCore_0 (PID: 42) died with exit code {code}",
    "container draftmark-1 exited with {shell}",
    "Nov 02 10:00:40 gpu07 systemd[1]: sglang.service: Main process exited, code=killed, status={signal}/SIG",
    "Nov 02 10:00:40 gpu07 systemd[1]: sglang.service: Main process exited, code=dumped, status={signal}/SIG",
    "2026-11-02 10:00:20,111 WARN exited: sglang (terminated by {name}; not expected)",
)


def died(line: str, number: int) -> str:
    name = signal.Signals(number).name
    return line.format(code=-number, shell=128 + number, signal=number, name=name) + "\n"


@pytest.mark.parametrize("line", DIED)
@pytest.mark.parametrize(("number", "name"), [(9, None), (11, "SIGSEGV"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE")])
def test_a_signal_is_named_whoever_tells_of_it(line: str, number: int, name: str | None) -> None:
    (finding,) = of(AFTER_WEIGHTS + died(line, number)).findings
    if name is None:
        assert (finding.code, finding.confidence) == ("killed", "possible")
        assert "host memory (or the container's limit)" in moves(finding)
    else:
        assert (finding.code, finding.confidence) == ("crashed", "certain")
        assert f"crashed with {name} in phase pool" in finding.claim
        assert any("--shm-size" in flag for flag in moves(finding)) is (name == "SIGBUS")


@pytest.mark.parametrize(
    ("status", "code"), [(9, "killed"), (139, "crashed"), (134, "crashed"), (256, None), (15, None)]
)
def test_what_waitpid_gives_holds_the_signal_in_its_lowest_bits(status: int, code: str | None) -> None:
    line = f"[2026-05-30 14:09:03] Child process unexpectedly failed with an exit code {status}. pid=4242\n"
    assert codes(of(AFTER_WEIGHTS + line)) == ([code] if code else [])


@pytest.mark.parametrize("code", [0, 1, -2, -3, -15, 130, 143])
def test_an_end_that_was_asked_for_is_no_death(code: int) -> None:
    line = f"[2026-05-30 14:09:03] Scheduler or DataParallelController 4242 terminated with {code}\n"
    assert of(SERVING + line).findings == ()


@pytest.mark.parametrize("line", DIED)
@pytest.mark.parametrize("number", [9, 11, 6])
@pytest.mark.parametrize("cause", ["ValueError: the weights are upside down\n", OUT_OF_MEMORY])
def test_a_word_before_the_death_says_more(line: str, number: int, cause: str) -> None:
    found = codes(of(AFTER_WEIGHTS + cause + died(line, number)))
    assert not {"killed", "crashed"} & set(found)
    assert found


@pytest.mark.parametrize(
    "line",
    [
        "ERROR 07-02 10:00:00 [core_client.py:599] Engine core proc Core_DP0 died unexpectedly, shutting down client.",
        "ERROR 07-02 10:00:00 [multiproc_executor.py:124] Worker proc VllmWorker-0 died unexpectedly, shutting down.",
    ],
)
def test_versions_that_tell_no_code_leave_it_possible(line: str) -> None:
    assert [(one.code, one.confidence) for one in of(f"{VLLM}{line}\n").findings] == [("killed", "possible")]
    assert codes(of(f"{VLLM}ERROR 07-02 10:00:00 [x.py:1] ValueError: no\n{line}\n")) == ["unknown"]


def test_a_container_that_was_asked_to_end_was_not_killed_for_memory() -> None:
    asked = "[2026-05-30 14:09:03] SIGTERM received. Draining.\n"
    assert "killed" not in codes(of(f"{SERVING}{asked}container exited with 137\n"))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Fatal Python error: Segmentation fault", "SIGSEGV"),
        ("!!!!!!! Segfault encountered !!!!!!!", "SIGSEGV"),
        ("Segmentation fault (core dumped)", "SIGSEGV"),
        ("bash: line 1: 4242 Bus error               (core dumped) python -m sglang.launch_server", "SIGBUS"),
        ("Aborted (core dumped)", "SIGABRT"),
        ("/entry.sh: line 3:    77 Segmentation fault      python -m sglang.launch_server --tp 8", "SIGSEGV"),
        ("Aborted", "SIGABRT"),
    ],
)
def test_a_crash_that_left_its_own_line(line: str, name: str) -> None:
    findings = of(f"{SERVING}{line}\n").findings
    assert [(one.code, name in one.claim) for one in findings] == [("crashed", True)]


def test_a_crash_explains_the_worker_that_is_missed() -> None:
    died = (
        "ERROR 07-02 10:00:00 [x.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down.\n"
    )
    (finding,) = of(VLLM + "!!!!!!! Segfault encountered !!!!!!!\n" + died).findings
    assert finding.code == "crashed"
    assert "PYTHONFAULTHANDLER" not in moves(finding), "the stack is in the log"


@pytest.mark.parametrize("line", ["request cmpl-1 Aborted", "[2026-05-30 14:09:03] Aborted", "Aborted requests: 3"])
def test_a_request_that_was_aborted_is_no_crash(line: str) -> None:
    assert of(f"{SERVING}{line}\n").findings == ()


@pytest.mark.parametrize(
    "line",
    [  # 0.10.2 and 0.11.0; 0.32.0; its Ray executor
        "ERROR 07-02 10:00:00 [core_client.py:565] Engine core proc EngineCore_DP0 died unexpectedly, shutting down.",
        "WARNING 07-02 10:00:00 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; cleanup",
        "ERROR 07-02 10:00:00 [ray_executor_v2.py:523] RayWorkerProc rank=3 died unexpectedly, shutting down executor.",
    ],
)
def test_a_process_of_vllm_that_left_no_word(line: str) -> None:
    dead = (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.\n"
    )
    (finding,) = of(f"{VLLM}{line}\n{dead}").findings
    assert (finding.code, finding.confidence) == ("killed", "possible")
    assert "killed" not in codes(of(f"{VLLM}ValueError: something odd\n{line}\n{dead}"))
