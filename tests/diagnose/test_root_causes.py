"""Exceptions: which one is the cause, which are consequences, which were survived, and what users wrote."""

import pytest

from tests.diagnose.logs import AFTER_POOL, ENGINE_FAILED, GOES_ON, SCENARIO, SEE_ABOVE, SERVING, VLLM, codes, of


def test_what_is_not_known_shows_the_lines_to_read() -> None:
    found = of(SCENARIO[: SCENARIO.index("torch.OutOf")] + "ValueError: the weights are upside down\nbye\n")
    (finding,) = found.findings
    assert (finding.code, finding.confidence) == ("unknown", "possible")
    assert "ValueError: the weights are upside down" in [seen.value for seen in finding.evidence]


@pytest.mark.parametrize(
    "cause",
    [
        "ValueError: something odd",
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        "xgrammar.errors.GrammarError: no such rule",
        "AssertionError",
    ],
)
@pytest.mark.parametrize("process", ["", "(EngineCore_DP0 pid=77) "])
@pytest.mark.parametrize("after", ["", SEE_ABOVE, "(APIServer pid=70) " + SEE_ABOVE])
def test_the_root_cause_stands_behind_the_prefix_of_its_process(cause: str, process: str, after: str) -> None:
    lines = ENGINE_FAILED.format(cause=cause).splitlines()
    found = of(VLLM + "".join(f"{process}{line}\n" for line in lines) + after)
    (finding,) = found.findings
    assert finding.code == "unknown"
    assert str(finding.evidence[0].value).endswith(cause)


def test_the_root_cause_comes_before_the_reports_of_other_processes() -> None:
    cause = "(EngineCore_DP0 pid=77) ERROR 07-02 10:10:01 [core.py:588] ValueError: something odd\n"
    (finding,) = of(VLLM + "(APIServer pid=70) " + SEE_ABOVE + cause).findings
    assert str(finding.evidence[0].value).endswith("ValueError: something odd")


@pytest.mark.parametrize("words", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                                   "an illegal memory access was encountered", "CUDA out of memory. Tried to allocate",
                                   "ValueError: no"])  # fmt: skip
@pytest.mark.parametrize(
    "line",
    [
        "[2026-05-30 14:09:03] prompt: 'why {}?'",
        "INFO 07-02 10:10:00 [logger.py:43] Received request cmpl-1: prompt: 'why {}?', params: SamplingParams(n=1)",
        "[2026-05-30 14:09:03] Receive: obj=GenerateReqInput(text='why {}?', rid='1')",
        "[2026-05-30 14:09:03] input: why {}?",
        "{{'messages': [{{'role': 'user', 'content': 'why {}?'}}]}}",
    ],
)
def test_what_users_write_is_no_trouble(line: str, words: str) -> None:
    assert of(SERVING + line.format(words) + "\n").findings == ()


def test_an_exception_before_a_quoted_request_is_read() -> None:
    (finding,) = of(SERVING + "ValueError: cannot answer prompt: 'hello'\n").findings
    assert finding.evidence[0].value == "ValueError: cannot answer "


def test_a_server_that_goes_on_is_not_dead() -> None:
    crash = SCENARIO[: SCENARIO.index("[2026-05-30 14:09:04]")]
    assert of(crash).findings[0].severity == "fatal"
    first = of(crash + GOES_ON).findings[0]
    assert (first.code, first.severity) == ("prefill-oom", "warning")
    assert first.claim.endswith("the server went on serving after it")
    assert of(SERVING + "ValueError: one request was wrong\n" + GOES_ON).findings == ()


def test_lines_of_other_ranks_do_not_revive_a_server_that_ended_itself() -> None:
    head, end = SCENARIO.split("[2026-05-30 14:09:04]")
    assert of(f"{head}{GOES_ON}[2026-05-30 14:09:04]{end}").findings[0].severity == "fatal"


def test_an_exception_that_was_survived_hides_neither_the_fatal_one_nor_an_earlier_start() -> None:
    survived = "ValueError: one request was wrong\n" + GOES_ON
    (finding,) = of(SERVING + survived + "KeyError: 'lost'\n").findings
    assert finding.evidence[0].value == "KeyError: 'lost'"
    assert "(start 1 of 2; the last start serves)" in of(SCENARIO + SERVING + survived).findings[0].claim


def test_a_worker_that_died_of_something_else_is_unknown() -> None:
    died = "ERROR 11-29 20:44:13 [executor.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: 1)\n"
    assert codes(of(VLLM + died)) == ["unknown"]


@pytest.mark.parametrize("cause", ["triton.runtime.errors.OutOfResources: out of resource", "AssertionError"])
def test_an_exception_without_prefix_is_seen(cause: str) -> None:
    (finding,) = of(AFTER_POOL + cause + "\n").findings
    assert (finding.code, finding.evidence[0].value) == ("unknown", cause)


TRACEBACK = 'Traceback (most recent call last):\n  File "/v/core.py", line 579, in run\n    it()\n'


@pytest.mark.parametrize("process", ["", "(EngineCore_DP0 pid=77) "])
@pytest.mark.parametrize(
    "cause",
    [
        "queue.Empty",
        "subprocess.TimeoutExpired: Command '['nvidia-smi']' timed out after 30 seconds",
        "asyncio.exceptions.InvalidState: no",
        "starlette.requests.ClientDisconnect",
    ],
)
def test_what_ends_a_traceback_is_its_exception_whatever_its_name(cause: str, process: str) -> None:
    raised = "".join(f"{process}{line}\n" for line in (TRACEBACK + cause).splitlines())
    (finding,) = of(VLLM + raised).findings
    assert finding.code == "unknown"
    assert str(finding.evidence[0].value).endswith(cause)
    assert of(SERVING + f"{process}{cause}\n").findings == (), "no traceback, no exception"
    assert of(SERVING + TRACEBACK + "ValueError: one\n" + GOES_ON + f"{cause}\n").findings == (), "it has ended"
