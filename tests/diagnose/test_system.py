"""What the operating system refuses, and libraries and compilers that are not there or do not fit."""

import pytest

from tests.diagnose.logs import AFTER_WEIGHTS, GOES_ON, OUT_OF_MEMORY, SERVING, VLLM, codes, moves, of

FILES = "OSError: [Errno 24] Too many open files"


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (FILES, "ulimit -n"),
        ("zmq.error.ZMQError: Too many open files", "ulimit -n"),
        ("OSError: [Errno 23] Too many open files in system", "fs.file-max (sysctl)"),
    ],
)
def test_files_that_cannot_be_opened(line: str, flag: str) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert (finding.code, finding.severity, finding.confidence) == ("too-many-files", "fatal", "certain")
    assert moves(finding) == {flag: ("raise", None)}


def test_files_that_a_server_does_without_are_a_warning() -> None:
    (finding,) = of(f"{SERVING}{FILES}\n{GOES_ON}").findings
    assert (finding.code, finding.severity) == ("too-many-files", "warning")
    assert "too-many-files" not in codes(of(AFTER_WEIGHTS + OUT_OF_MEMORY + FILES + "\n"))


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/psm_1a2b'", "/dev/shm"),
        ("PermissionError: [Errno 13] Permission denied: '/dev/shm/x'", "/dev/shm"),
        (
            "h:1:1 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-k1, error: Permission denied",
            "/dev/shm",
        ),
        ("PermissionError: [Errno 13] Permission denied: '/r/.cache/huggingface/hub'", "HF_HOME"),
        ("PermissionError: [Errno 13] Permission denied: '/.triton'", "TRITON_CACHE_DIR"),
        ("OSError: [Errno 30] Read-only file system: '/root/.cache/vllm'", "VLLM_CACHE_ROOT"),
        ("PermissionError: [Errno 13] Permission denied: '/models/q/x'", "the rights of /models/q/x"),
    ],
)
def test_what_the_engine_may_not_use(line: str, flag: str) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert (finding.code, finding.confidence) == ("permission-denied", "certain")
    assert list(moves(finding)) == [flag]


@pytest.mark.parametrize(
    ("line", "claim", "flag"),
    [
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "the loader does not find the library libcudart.so.12",
            "LD_LIBRARY_PATH",
        ),
        (
            "- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
            "the loader does not find the library libnvrtc.so.12",
            "LD_LIBRARY_PATH",
        ),
        (
            "ModuleNotFoundError: No module named 'sgl_kernel'",
            "the Python module sgl_kernel is not in the Python that was started",
            "sgl_kernel",
        ),
        (
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            "nvcc is not found",
            "CUDA_HOME",
        ),
        ("/bin/sh: 1: nvcc: not found", "nvcc is not found", "CUDA_HOME"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
            "/usr/local/cuda/bin/nvcc is not found",
            "CUDA_HOME",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "ninja is not found", "PATH"),
        (
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "the CUDA toolkit is not found",
            "CUDA_HOME",
        ),
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "a C compiler is not found", "CC"),
    ],
)
def test_what_is_not_installed(line: str, claim: str, flag: str) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert (finding.code, finding.severity, finding.confidence) == ("not-installed", "fatal", "certain")
    assert finding.claim.startswith(claim)
    assert list(moves(finding)) == [flag]


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        (
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /v/_C.abi3.so)",
            "the build needs GLIBC_2.32",
        ),
        ("ImportError: /l/libstdc++.so.6: version `GLIBCXX_3.4.30' not found", "the build needs GLIBCXX_3.4.30"),
        (
            "ImportError: /v/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
            "/v/sgl_kernel/common_ops.abi3.so was built against another version",
        ),
    ],
)
def test_a_build_that_does_not_fit(line: str, claim: str) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert (finding.code, finding.confidence) == ("wrong-build", "certain")
    assert finding.claim.startswith(claim)


@pytest.mark.parametrize(
    "line",
    [
        (
            "WARNING 11-29 20:43:55 [system_utils.py:255] Found ulimit of 20000 and failed to automatically increase "
            "with error x. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`."
        ),
        "WARNING 07-02 10:00:00 [x.py:1] ImportError: libmoe.so.1: cannot open shared object file: No such file",
        "WARNING 07-02 10:00:00 [x.py:1] ModuleNotFoundError: No module named 'flashinfer'",
        "WARNING 07-02 10:00:00 [x.py:1] OSError: CUDA_HOME environment variable is not set.",
        "WARNING 07-02 10:00:00 [x.py:1] PermissionError: [Errno 13] Permission denied: '/.triton'",
        "WARNING 07-02 10:00:00 [x.py:1] ImportError: /v/x.so: undefined symbol: abc",
    ],
)
def test_what_the_engine_does_without_is_no_trouble(line: str) -> None:
    assert of(f"{VLLM}{line}\n").findings == ()


SGL_KERNEL = """\
ImportError:
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Error details from previous import attempts:
- ImportError: {}
- ModuleNotFoundError: No module named 'common_ops'
"""
"""As sglang-kernel 0.4.4 says it (`load_utils`)."""


@pytest.mark.parametrize(
    ("detail", "code"),
    [
        ("libnvrtc.so.12: cannot open shared object file: No such file or directory", "not-installed"),
        ("/v/sgl_kernel/sm90/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "wrong-build"),
        ("/lib/libc.so.6: version `GLIBC_2.35' not found (required by /v/common_ops.abi3.so)", "wrong-build"),
    ],
)
def test_what_keeps_sgl_kernel_from_loading(detail: str, code: str) -> None:
    (finding,) = of(SGL_KERNEL.format(detail)).findings
    assert (finding.code, finding.confidence) == (code, "certain")
