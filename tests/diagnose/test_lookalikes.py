"""What looks like a lack of memory and is none."""

import pytest

from tests.diagnose.logs import AFTER_POOL, OUT_OF_MEMORY, SCENARIO, SERVING, VLLM, codes, moves, of


def test_a_watchdog_after_an_out_of_memory_is_its_consequence() -> None:
    late = "[2026-05-30 14:14:04 TP5] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    assert "watchdog" not in codes(of(SCENARIO + late))
    assert codes(of(SCENARIO[: SCENARIO.index("[2026-05-30 14:09:03")] + late)) == ["watchdog"]


@pytest.mark.parametrize(("size", "possible"), [("2.60", False), ("7.99", False), ("8.01", True), ("55.20", True)])
def test_an_overflow_is_possible_only_where_the_pool_is_large_enough(size: str, possible: bool) -> None:
    illegal = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    (finding,) = of(SERVING.replace("KV size: 13.09 GB", f"KV size: {size} GB") + illegal).findings
    assert (finding.code, finding.confidence) == ("illegal-access", "certain")
    assert ("possible: an offset of 32 bits overflows" in finding.claim) is possible
    flags = [change.flag for remedy in finding.remedies for change in remedy.changes]
    assert ("a kernel with 64-bit offsets" in flags) is possible
    assert "another attention backend" in flags


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


TILE = (
    "triton.runtime.errors.OutOfResources: out of resource: {}, Required: 147456, Hardware limit: 101376. Reducing "
    "block sizes or `num_stages` may help.\n"
)


@pytest.mark.parametrize("resource", ["shared memory", "registers", "tensor memory"])
@pytest.mark.parametrize("before", ["", VLLM, SERVING])
def test_a_kernel_too_large_for_the_gpu_is_no_full_dev_shm(before: str, resource: str) -> None:
    (finding,) = of(before + TILE.format(resource)).findings
    assert (finding.code, finding.severity, finding.confidence) == ("kernel-tile", "fatal", "certain")
    assert f"147,456 of {resource} a block and this GPU has 101,376" in finding.claim
    assert moves(finding)["--shm-size"] == ("cannot help", None)


WAITS = (  # vLLM 0.11.2 and 0.32.0
    "INFO 07-02 10:10:00 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds. This\n",
    (
        "(EngineCore pid=7) INFO 07-02 10:10:00 [device_communicators/shm_broadcast.py:698] No available shared memory "
        "broadcast block found in 60 seconds. This typically happens when some processes are hanging or\n"
    ),
)
IDLE = (  # vLLM 0.6.6, 0.8.5 (both places) and 0.10.2, at DEBUG: a server without requests says it every minute
    "DEBUG 07-02 10:10:00 [shm_broadcast.py:356] No available block found in 60 second. \n",
    "DEBUG 07-02 10:10:00 [shm_broadcast.py:368] No available shared memory broadcast block found in 60 second.\n",
    "DEBUG 07-02 10:10:00 [shm_broadcast.py:431] No available shared memory broadcast block foundin 60 second.\n",
)


@pytest.mark.parametrize("line", IDLE)
def test_an_idle_server_waits_for_nobody(line: str) -> None:
    assert of(VLLM + "Application startup complete.\n" + 30 * line).findings == ()


@pytest.mark.parametrize("line", WAITS)
def test_a_wait_is_neither_memory_nor_dev_shm(line: str) -> None:
    (finding,) = of(VLLM + 3 * line).findings
    assert (finding.code, finding.severity) == ("waits-for-worker", "warning")
    assert "has waited 180 s" in finding.claim
    assert moves(finding)["--gpu-memory-utilization"][0] == "cannot help"


DIED = "ERROR 07-02 10:11:00 [multiproc_executor.py:124] Worker proc VllmWorker-1 died unexpectedly, shutting down.\n"


@pytest.mark.parametrize("cause", [OUT_OF_MEMORY, DIED])
def test_who_waits_for_one_that_failed_is_not_reported(cause: str) -> None:
    assert "waits-for-worker" not in codes(of(VLLM + WAITS[0] + cause))


UNHEALTHY = (
    "[2026-05-30 14:10:00] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 14:09:40. last_heartbeat time: 14:09:02\n"
)


def test_a_health_check_that_failed_is_a_warning_and_may_be_a_long_prefill() -> None:
    (finding,) = of(SERVING + UNHEALTHY).findings
    assert (finding.code, finding.severity) == ("health-check-failed", "warning")
    assert moves(finding) == {
        "SGLANG_HEALTH_CHECK_TIMEOUT": ("raise", None),
        "--chunked-prefill-size": ("lower", "4096"),
    }


def test_a_health_check_before_a_watchdog_is_its_consequence() -> None:
    late = "[2026-05-30 14:14:04 TP5] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    assert codes(of(SERVING + UNHEALTHY + late)) == ["watchdog"]
    assert "health-check-failed" not in codes(of(SCENARIO + UNHEALTHY))


WORKSPACE = (
    "RuntimeError: Error in function 'aligned_alloc' at /flashinfer/allocator.h:49: Buffer overflow when allocating "
    "memory for batch_prefill_tmp_v with size 541065216 and alignment 16, but only 402653184 bytes available in "
    "AlignedAllocator. Increase the workspace buffer size.\n"
)


@pytest.mark.parametrize(
    ("before", "flag"),
    [(SERVING, "SGLANG_FLASHINFER_WORKSPACE_SIZE"), (VLLM, "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE")],
)
def test_a_workspace_that_is_too_small_is_no_lack_of_the_gpus_memory(before: str, flag: str) -> None:
    (finding,) = of(before + WORKSPACE).findings
    assert (finding.code, finding.confidence) == ("workspace-too-small", "certain")
    assert "has 384 MiB left and a step wants 516 MiB" in finding.claim
    assert moves(finding)[flag] == ("raise", None)


@pytest.mark.parametrize(
    ("before", "flag"),
    [(VLLM, "other processes on the GPU"), (AFTER_POOL, "--mem-fraction-static")],
)
def test_nccl_without_memory_for_its_buffers(before: str, flag: str) -> None:
    lines = (
        "gpu07:2211:2300 [3] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
    )
    (finding,) = of(before + lines).findings
    assert (finding.code, finding.confidence) == ("communication-error", "likely")
    assert {name: direction for name, (direction, _) in moves(finding).items()} == {flag: "lower"}


ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [3,0,0], thread: [64,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
ASSERTED = "torch.AcceleratorError: CUDA error: device-side assert triggered\n"


@pytest.mark.parametrize("before", ["", VLLM, SERVING])
@pytest.mark.parametrize("lines", [ASSERTED, ASSERTION + ASSERTED, "RuntimeError: CUDA_ERROR_ASSERT\n"])
def test_an_assertion_on_the_gpu_is_no_lack_of_memory(before: str, lines: str) -> None:
    (finding,) = of(before + lines).findings
    assert (finding.code, finding.severity, finding.confidence) == ("device-assert", "fatal", "certain")
    assert ("`srcIndex < srcSelectDimSize` does not hold" in finding.claim) is (ASSERTION in lines)


def test_the_hint_on_assertions_is_none() -> None:
    hint = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    assert "device-assert" not in codes(of(SCENARIO + hint))


XID = "NVRM: Xid (PCI:0000:01:00): {}, pid=4242, name=python3, Ch 00000010\n"


@pytest.mark.parametrize("number", [8, 32, 43, 45, 62, 109])
def test_an_xid_alone_is_only_possible(number: int) -> None:
    for before in ("", SERVING):
        (finding,) = of(before + XID.format(number)).findings
        assert (finding.code, finding.severity, finding.confidence) == ("device-fault", "warning", "possible")
        assert f"Xid {number}:" in finding.claim
    assert "device-fault" not in codes(of(SCENARIO + XID.format(number))), "a consequence of the out of memory"
    assert codes(of(XID.format(31) + XID.format(number))) == ["illegal-access"]
    assert [(one.code, one.confidence) for one in of(XID.format(79) + XID.format(number)).findings] == [
        ("device-fault", "certain")
    ]
