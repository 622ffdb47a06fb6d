"""The host's memory is told apart from the GPU's, whoever says that it ran out."""

import pytest

from tests.diagnose.logs import AFTER_POOL, AFTER_WEIGHTS, OUT_OF_MEMORY, SCENARIO, SERVING, VLLM, codes, moves, of

CPU_ALLOCATOR = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: {}you tried to allocate "
    "1073741824 bytes. Error code 12 (Cannot allocate memory)\n"
)
ENGINE = "INFO 07-02 10:00:09 [core.py:69] Initializing a V1 LLM engine (v0.9.2) with config: model='m', {}, seed=0\n"
RAY = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: 10.0.0.1, ID: 5c1) where the task (task ID: ff, name=RayWorkerWrapper.execute_method, "
    "pid=9, memory used=51.02GB) was running was 228.11GB / 235.00GB (0.970686), which exceeds the memory usage "
    "threshold of 0.95. Ray killed this worker (ID: 8a) because it was the most recently scheduled task.\n"
)


@pytest.mark.parametrize(
    "words",
    [
        "MemoryError\n",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape (1, 2)\n",
        "terminate called after throwing an instance of 'std::bad_alloc'\n",
        "OSError: [Errno 12] Cannot allocate memory\n",
        *(
            CPU_ALLOCATOR.format(said)
            for said in ("can't allocate memory: ", "not enough memory: ", "not enough memory; ")
        ),
    ],
)
@pytest.mark.parametrize("before", [AFTER_WEIGHTS, AFTER_POOL, SERVING, VLLM, ENGINE.format("device_config=cuda")])
def test_the_host_ran_out_beside_a_gpu(words: str, before: str) -> None:
    (finding,) = of(before + words).findings
    assert (finding.code, finding.severity, finding.confidence) == ("host-out-of-memory", "fatal", "certain")
    assert moves(finding)["host memory (or the container's limit)"][0] == "raise"
    assert [
        direction for flag, (direction, _) in moves(finding).items() if "mem" in flag and flag.startswith("--")
    ] == ["cannot help"]


def test_on_a_cpu_the_host_is_the_device() -> None:
    on_cpu = ENGINE.format("device_config=cpu") + '  File "utils.py", line 596, in allocate_kv_cache\n'
    assert codes(of(on_cpu + CPU_ALLOCATOR.format("can't allocate memory: "))) == ["pool-oom"]


@pytest.mark.parametrize(
    ("lines", "confidence"),
    [
        ('  File "x.py", line 1, in __init__\n    self.cpu = torch.zeros(n, pin_memory=True)\n{}', "likely"),
        ('  File "x.py", line 1, in send\n    return tensor.pin_memory()\n{}', "likely"),
        ('  File "/sglang/srt/mem_cache/pool_host/base.py", line 1, in alloc\n{}', "likely"),
        ("RuntimeError: cudaHostRegister failed (rc=2, out of memory) at offset=0 size=1\n", "certain"),
        ("RuntimeError: cudaHostRegister(1073741824 bytes) failed: cudaError.cudaErrorMemoryAllocation\n", "certain"),
    ],
)
@pytest.mark.parametrize(("before", "flag"), [(AFTER_POOL, "--hicache"), (VLLM, "--kv-offloading-size")])
def test_memory_that_could_not_be_pinned(before: str, flag: str, lines: str, confidence: str) -> None:
    finding = of(before + lines.format("torch.AcceleratorError: CUDA error: out of memory\n")).findings[0]
    assert (finding.code, finding.confidence) == ("host-out-of-memory", confidence)
    assert "pinned" in finding.claim
    first, *_ = moves(finding)
    assert first.startswith(flag)


@pytest.mark.parametrize(
    "lines",
    [
        "    x = torch.zeros(n, pin_memory=True)\n"
        + 8 * "  File 'y.py', line 1, in forward\n"
        + "CUDA error: out of memory\n",
        "    x = torch.zeros(n, pin_memory=True)\n" + OUT_OF_MEMORY,
    ],
)
def test_pinning_somewhere_above_is_not_the_cause(lines: str) -> None:
    assert codes(of(SERVING + lines))[0] == "prefill-oom"


def test_an_offloader_that_does_without_pinning_is_no_trouble() -> None:
    line = "WARNING 07-02 10:00:00 [host_register.py:55] cudaHostRegister failed (code=2) — transfers will still work\n"
    assert of(VLLM + line).findings == ()


@pytest.mark.parametrize("before", ["", VLLM, "(EngineCore pid=7) "])
def test_rays_memory_monitor_is_not_the_gpu(before: str) -> None:
    (finding,) = of(before + RAY).findings
    assert (finding.code, finding.confidence) == ("host-out-of-memory", "certain")
    assert "228.11 of 235.00 GB used, threshold 0.95" in finding.claim
    assert moves(finding)["RAY_memory_usage_threshold"] == ("raise", None)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "cicc"),
        ("nvcc error   : 'ptxas' died due to signal 9 (Kill signal)", "ptxas"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "cc1plus"),
        (
            "/bin/sh: line 1:  4242 Killed                  /usr/local/cuda/bin/nvcc --generate-dependencies a.cu",
            "nvcc",
        ),
    ],
)
def test_a_compiler_that_was_killed_wants_fewer_jobs(line: str, program: str) -> None:
    (finding,) = of(
        f"{AFTER_POOL}FAILED: [code=137] a.cuda.o\n{line}\nninja: build stopped: subcommand failed.\n"
    ).findings
    assert (finding.code, finding.confidence) == ("host-oom-killer", "likely")
    assert program in finding.claim
    assert moves(finding)["MAX_JOBS"] == ("lower", "1")
    (alone,) = of(f"MAX_JOBS=1\n{AFTER_POOL}{line}\n").findings
    assert "MAX_JOBS" not in moves(alone)
    assert "host memory (or the container's limit)" in moves(alone)


def test_the_gpus_own_words_are_not_the_hosts() -> None:
    assert "host-out-of-memory" not in codes(of(SCENARIO))


@pytest.mark.parametrize(
    "lines",
    [
        "Nov 02 10:00:40 gpu07 systemd[1]: sglang.service: A process of this unit has been killed by the OOM killer.\n",
        (
            "Nov 02 10:00:40 gpu07 systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL\n"
            "Nov 02 10:00:40 gpu07 systemd[1]: sglang.service: Failed with result 'oom-kill'.\n"
        ),
        "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
    ],
)
def test_whoever_supervises_the_engine_tells_of_the_oom_killer(lines: str) -> None:
    (finding,) = of(AFTER_WEIGHTS + lines).findings
    assert (finding.code, finding.confidence) == ("host-oom-killer", "certain")


@pytest.mark.parametrize(
    "words", ["MemoryError\n", "terminate called after throwing an instance of 'std::bad_alloc'\n"]
)
def test_a_limit_that_an_engine_on_a_cpu_cannot_even_begin_under(words: str) -> None:
    (finding,) = of(ENGINE.format("device_config=cpu") + words).findings
    assert (finding.code, list(moves(finding))) == ("host-out-of-memory", ["host memory (or the container's limit)"])
