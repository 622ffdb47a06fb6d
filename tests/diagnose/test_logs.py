"""Whole logs: real ones, the scenario's crash, and what terminals, restarts and broken disks do to a log."""

import io
import json
import time
import tracemalloc
from pathlib import Path

import pytest

from draftmark.diagnose import Diagnosis, diagnose
from draftmark.finding import Finding

DATA = Path(__file__).parents[1] / "data"

SCENARIO = """\
[2026-05-30 14:00:00] server_args=ServerArgs(model_path='/models/Kimi-K2.6', mem_fraction_static=0.94, \
max_total_tokens=None, chunked_prefill_size=8192, page_size=64, tp_size=8, speculative_algorithm='EAGLE')
[2026-05-30 14:00:10 TP3] Init torch distributed ends. elapsed=9.10 s, mem usage=1.90 GB
[2026-05-30 14:00:10 TP3] Load weight begin. avail mem=92.60 GB
[2026-05-30 14:06:40 TP3] Load weight end. elapsed=390.00 s, type=DeepseekV3ForCausalLM, avail mem=18.40 GB, \
mem usage=74.20 GB.
[2026-05-30 14:06:43 TP3] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, KV size: 13.09 GB
[2026-05-30 14:06:43 TP3] Memory pool end. avail mem=5.20 GB
[2026-05-30 14:07:20 TP3] Capture target verify CUDA graph end. elapsed=36.00 s, mem usage=1.10 GB, avail mem=4.10 GB.
[2026-05-30 14:07:21 TP3] max_total_num_tokens=200000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=48, context_len=262144, available_gpu_mem=4.10 GB
[2026-05-30 14:07:30] The server is fired up and ready to roll!
[2026-05-30 14:09:00 TP3] Prefill batch. #new-seq: 1, #new-token: 8192, #cached-token: 16384, token usage: 0.12
[2026-05-30 14:09:03 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/sglang/srt/managers/scheduler.py", line 3259, in run_batch
  File "/sglang/srt/model_executor/model_runner.py", line 3010, in forward_extend
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 3 has a total capacity of 94.97 GiB of \
which 893.00 MiB is free. Including non-PyTorch memory, this process has 94.09 GiB memory in use. Of the allocated \
memory 91.20 GiB is allocated by PyTorch, with 626.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.40 GiB \
is reserved by PyTorch but unallocated.
[2026-05-30 14:09:04] Received sigquit from a child process. It usually means the child failed.
"""


def of(text: str | bytes) -> Diagnosis:
    return diagnose(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "server.log")


def codes(found: Diagnosis) -> list[str]:
    return [finding.code for finding in found.findings]


def lines_of(finding: Finding) -> list[int | None]:
    return [seen.source.line for seen in finding.evidence]


def test_the_scenario_gets_its_remedies_by_what_they_cost() -> None:
    found = of(SCENARIO)
    assert (found.engine, found.starts, found.phase) == ("sglang", 1, "prefill")
    first = found.findings[0]
    assert (first.code, first.severity, first.confidence) == ("prefill-oom", "fatal", "certain")
    assert first.claim == (
        "out of memory at the activation peak of a prefill step: tried 896 MiB, 893 MiB free, missed by 3 MiB, with "
        "1.40 GiB stranded by fragmentation, 626 MiB in private pools of graphs"
    )
    assert lines_of(first)[0] == 14
    expandable, chunk, fraction = first.remedies
    assert expandable.changes[0].value == "expandable_segments:True"
    assert "custom all-reduce" in expandable.cost
    assert (chunk.changes[0].flag, chunk.changes[0].direction, chunk.changes[0].value) == (
        "--chunked-prefill-size",
        "lower",
        "4096",
    )
    assert chunk.cost.startswith("no pool")
    assert (fraction.changes[0].direction, fraction.changes[0].value) == ("lower", "0.939")
    assert "about 1,451 tokens" in fraction.cost
    assert "fragmented" in codes(found)


def test_settings_that_are_made_already_are_not_proposed() -> None:
    from draftmark.configuration import Configuration

    configuration = Configuration(
        engine="sglang", model="m", environment=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)
    )
    found = diagnose(io.BytesIO(SCENARIO.encode()), "server.log", configuration)
    flags = [change.flag for remedy in found.findings[0].remedies for change in remedy.changes]
    assert flags == ["--chunked-prefill-size", "--mem-fraction-static"]


@pytest.mark.parametrize(
    ("name", "code", "confidence"),
    [
        ("logs/vllm-0.32.0-cpu/pool-oom.log", "pool-oom", "certain"),
        ("logs/vllm-0.32.0-cpu/serve-oom.log", "logits-oom", "certain"),
        ("logs/vllm-0.32.0-cpu/killed.log", "killed", "possible"),
        ("embedded/oom-pool.log", "pool-oom", "certain"),
        ("embedded/oom-prefill.log", "prefill-oom", "certain"),
    ],
)
def test_real_logs(name: str, code: str, confidence: str) -> None:
    found = of((DATA / name).read_bytes())
    assert (found.findings[0].code, found.findings[0].confidence) == (code, confidence)
    assert found.engine == name.split("/")[-2].split("-")[0]


def test_a_good_log_has_no_findings() -> None:
    assert of((DATA / "embedded" / "ready.log").read_bytes()).findings == ()


STARTS = {
    row["name"]: row for row in map(json.loads, (DATA / "sglang-starts" / "starts.jsonl").read_text().splitlines())
}


MEANT_TO_FAIL: dict[str, tuple[set[str], str]] = {
    "fails-prefill-activations": ({"prefill-oom"}, "lower"),
    "fails-prefill-tight": ({"prefill-oom"}, "lower"),
    "fails-graphs-tight": ({"graph-oom"}, "lower"),
    "fails-fraction-too-high": ({"pool-oom", "graph-oom", "warm-up-oom", "prefill-oom"}, "lower"),
    "fails-fraction-below-weights": ({"no-room-for-pool"}, "raise"),
}
"""By name: what it may be called, and where the fraction has to move."""


@pytest.mark.parametrize("name", sorted(STARTS))
def test_real_starts_of_sglang(name: str) -> None:
    row = STARTS[name]
    log = row["log"] if isinstance(row["log"], str) else "\n".join(row["log"])
    found = of(log)
    if name in MEANT_TO_FAIL and found.findings:
        expected, direction = MEANT_TO_FAIL[name]
        first = found.findings[0]
        assert first.code in expected
        assert first.confidence == "certain"
        moved = [change for remedy in first.remedies for change in remedy.changes if "fraction" in change.flag]
        assert [change.direction for change in moved] == [direction]
    elif row["ready"]:
        assert found.findings == ()
    else:
        assert codes(found) == ["unknown"], "an engine's own assertion is not put down to memory"


def test_the_provoked_out_of_memory_is_among_the_starts() -> None:
    assert "fails-prefill-activations" in STARTS


def test_colour_junk_and_progress_bars_change_nothing() -> None:
    coloured = "\n".join(f"\x1b[32m{line}\x1b[0m" for line in SCENARIO.splitlines()).encode()
    bar = b"Loading safetensors:  0%|\r" + b"Loading safetensors: 50%|\r" * 5000 + b"\n"
    junk = bytes(range(256)) * 40 + b"\n"
    found = of(bar + coloured.replace(b"[2026-05-30 14:07:30]", junk + b"[2026-05-30 14:07:30]"))
    assert found.findings[0].code == "prefill-oom"
    assert found.findings[0].claim == of(SCENARIO).findings[0].claim


def test_the_last_of_several_starts_is_diagnosed() -> None:
    second = SCENARIO.replace("0.94", "0.93").replace("893.00 MiB", "890.00 MiB")
    found = of(SCENARIO + second)
    assert found.starts == 2
    assert "missed by 6 MiB" in found.findings[0].claim
    assert (lines_of(found.findings[0])[0] or 0) > len(SCENARIO.splitlines())


def test_interleaved_ranks_do_not_turn_the_phase_back() -> None:
    lagging = SCENARIO.replace(
        "[2026-05-30 14:09:03 TP3]", "[2026-05-30 14:09:01 TP5] Prefill batch. #new-seq: 1\n[2026-05-30 14:09:03 TP3]"
    )
    assert of(lagging).findings[0].code == "prefill-oom"


@pytest.mark.parametrize("cut", [0, 1, 100, 700, 1300])
def test_truncated_logs_are_survived(cut: int) -> None:
    found = of(SCENARIO.encode()[:cut])
    assert all(finding.confidence != "certain" for finding in found.findings)


def test_a_message_cut_in_the_middle_gives_no_number_that_is_not_there() -> None:
    found = of(SCENARIO[: SCENARIO.index("3.00 MiB is free")])
    assert found.findings[0].claim == "out of memory at the activation peak of a prefill step: tried 896 MiB"


def test_what_is_not_known_shows_the_lines_to_read() -> None:
    found = of(SCENARIO[: SCENARIO.index("torch.OutOf")] + "ValueError: the weights are upside down\nbye\n")
    (finding,) = found.findings
    assert (finding.code, finding.confidence) == ("unknown", "possible")
    assert "ValueError: the weights are upside down" in [seen.value for seen in finding.evidence]


def test_a_watchdog_after_an_out_of_memory_is_its_consequence() -> None:
    late = "[2026-05-30 14:14:04 TP5] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    assert "watchdog" not in codes(of(SCENARIO + late))
    assert codes(of(SCENARIO[: SCENARIO.index("[2026-05-30 14:09:03")] + late)) == ["watchdog"]


@pytest.mark.slow
def test_hundreds_of_megabytes_stream_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    quiet = (
        b"[2026-05-30 14:08:00 TP0] Decode batch, #running-req: 1, #token: 8, token usage: 0.01, gen throughput "
        b"(token/s): 118.60, #queue-req: 0\n"
        b'[2026-05-30 14:08:00] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
    )
    head, tail = SCENARIO.split("[2026-05-30 14:09:00")
    with path.open("wb") as log:
        log.write(head.encode())
        for _ in range(200):
            log.write(quiet * 5000)
        log.write(b"[2026-05-30 14:09:00" + tail.encode())
    assert path.stat().st_size > 200 * 10**6
    tracemalloc.start()
    began = time.monotonic()
    with path.open("rb") as stream:
        found = diagnose(stream, str(path))
    seconds, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.findings[0].code == "prefill-oom"
    assert lines_of(found.findings[0])[0] == 2_000_014
    assert peak < 32 * 2**20
    assert seconds < 120, "a slow machine with memory tracing; without it this takes seconds"


VLLM = """\
INFO 07-02 10:00:00 [api_server.py:1289] vLLM API server version 0.9.2
INFO 07-02 10:00:00 [cli_args.py:309] non-default args: {'model': 'm', 'gpu_memory_utilization': 0.95}
"""
ENGINE_FAILED = """\
ERROR 07-02 10:10:00 [core.py:588] EngineCore failed to start.
ERROR 07-02 10:10:00 [core.py:588] Traceback (most recent call last):
ERROR 07-02 10:10:00 [core.py:588]   File "/v/core.py", line 579, in run_engine_core
ERROR 07-02 10:10:00 [core.py:588] {cause}
"""
SEE_ABOVE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"


@pytest.mark.parametrize(
    "cause",
    [
        "ValueError: something odd",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456",
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


SERVING = SCENARIO[: SCENARIO.index("[2026-05-30 14:09:03")]
GOES_ON = """\
[2026-05-30 14:09:05] INFO:     127.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 200 OK
[2026-05-30 14:09:06 TP3] Decode batch, #running-req: 1, #token: 120, token usage: 0.00
"""


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


@pytest.mark.parametrize(("size", "possible"), [("2.60", False), ("7.99", False), ("8.01", True), ("55.20", True)])
def test_an_overflow_is_possible_only_where_the_pool_is_large_enough(size: str, possible: bool) -> None:
    illegal = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    (finding,) = of(SERVING.replace("KV size: 13.09 GB", f"KV size: {size} GB") + illegal).findings
    assert (finding.code, finding.confidence) == ("illegal-access", "certain")
    assert ("possible: an offset of 32 bits overflows" in finding.claim) is possible
    flags = [change.flag for remedy in finding.remedies for change in remedy.changes]
    assert ("a kernel with 64-bit offsets" in flags) is possible
    assert "another attention backend" in flags


@pytest.mark.parametrize(
    ("tried", "value"),
    [("896.00 MiB", "0.939"), ("14.00 GiB", "0.801"), ("16.60 GiB", None), ("90.00 GiB", None), ("200.00 GiB", None)],
)
def test_a_fraction_that_does_not_hold_the_weights_cannot_help(tried: str, value: str | None) -> None:
    first = of(SCENARIO.replace("Tried to allocate 896.00 MiB", f"Tried to allocate {tried}")).findings[0]
    remedy = first.remedies[-1]
    (change,) = remedy.changes
    assert change.flag == "--mem-fraction-static"
    assert change.value == value
    assert change.direction == ("lower" if value else "cannot help")
    assert value is not None or "does not hold the weights (74.20 GiB)" in remedy.arithmetic


@pytest.mark.parametrize("fraction", ["0.001", "1.5", "0"])
def test_no_fraction_is_printed_that_no_engine_takes(fraction: str) -> None:
    for finding in of(SCENARIO.replace("mem_fraction_static=0.94", f"mem_fraction_static={fraction}")).findings:
        changes = [change for remedy in finding.remedies for change in remedy.changes]
        assert [change.value for change in changes if change.flag == "--mem-fraction-static"] in ([], [None])


def test_the_watchdog_of_pytorch_is_not_the_engines() -> None:
    timeout = (
        "[rank{0}]:[E105 10:13:08.123456 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for "
        "600029 milliseconds before timing out.\n"
    )
    (finding,) = of(SERVING + timeout.format(1) + timeout.format(0)).findings
    assert (finding.code, finding.confidence) == ("communication-error", "certain")
    assert "on rank 0, 1: PyTorch's watchdog, not the engine's" in finding.claim
    assert "communication-error" not in codes(of(SCENARIO + timeout.format(1))), "a consequence of the out of memory"


@pytest.mark.parametrize(
    "lines",
    [
        "OSError: [Errno 28] No space left on device: '/psm_1a2b3c4d'\n",
        '  File "/usr/lib/multiprocessing/shared_memory.py", line 1\nOSError: [Errno 28] No space left on device\n',
    ],
)
def test_shared_memory_that_is_full_is_no_full_disk(lines: str) -> None:
    assert codes(of(VLLM + lines)) == ["shared-memory"]


def test_a_full_disk_is_none_of_shared_memory() -> None:
    assert codes(of(VLLM + "OSError: [Errno 28] No space left on device: '/models/x'\n")) == ["disk-full"]


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
AFTER_WEIGHTS = SCENARIO[: SCENARIO.index("[2026-05-30 14:06:43")]
AFTER_POOL = SCENARIO[: SCENARIO.index("[2026-05-30 14:07:20")]
IN_DECODE = SERVING + "[2026-05-30 14:09:02 TP3] Decode batch, #running-req: 1, #token: 120, token usage: 0.00\n"


@pytest.mark.parametrize(
    ("log", "code", "confidence"),
    [
        (AFTER_WEIGHTS + OUT_OF_MEMORY, "pool-oom", "likely"),
        (AFTER_WEIGHTS + '  File "x.py", line 1, in init_memory_pool\n' + OUT_OF_MEMORY, "pool-oom", "certain"),
        (AFTER_WEIGHTS + "ValueError: failed to allocate buffer for kv cache\n" + OUT_OF_MEMORY, "pool-oom", "certain"),
        (AFTER_POOL + OUT_OF_MEMORY, "pool-oom", "likely"),
        (AFTER_POOL + '  File "lora_manager.py", line 1, in init_memory_pool\n' + OUT_OF_MEMORY, "pool-oom", "likely"),
        (IN_DECODE + CUBLAS, "decode-oom", "likely"),
        (IN_DECODE + '  File "x.py", line 1, in forward_decode\n' + CUBLAS, "decode-oom", "certain"),
        (IN_DECODE + OUT_OF_MEMORY, "decode-oom", "certain"),
    ],
)
def test_the_last_marker_alone_makes_it_likely(log: str, code: str, confidence: str) -> None:
    first = of(log).findings[0]
    assert (first.code, first.confidence) == (code, confidence)
    assert first.claim.startswith("out of memory most likely") is (confidence == "likely")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (SCENARIO + SERVING, " (start 1 of 2; the last start serves)"),
        (SCENARIO + AFTER_WEIGHTS, " (start 1 of 2; the last start is in phase pool)"),
        (SCENARIO + SCENARIO, " (start 2 of 2)"),
        (SERVING + SCENARIO, " (start 2 of 2)"),
        (SERVING + SCENARIO + SERVING, " (start 2 of 3; the last start serves)"),
    ],
)
def test_a_finding_says_which_start_it_is_of(log: str, said: str) -> None:
    claims = [finding.claim for finding in of(log).findings]
    assert claims
    assert all(claim.endswith(said) for claim in claims)
    assert "(start" not in of(SCENARIO).findings[0].claim


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
