"""Signs of what looks like a lack of memory and is none."""

from typing import Final

from draftmark.diagnose.signs.pattern import Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    (
        "illegal access",
        (
            "illegal memory access",
            "ILLEGAL_ADDRESS",
        ),
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    ("illegal access", ("Xid (",), r"NVRM: Xid \(\S+\): (?P<xid>31|13)\b"),
    ("any Xid", ("Xid (",), r"NVRM: Xid \(\S+\): (?P<xid>\d+)\b"),
    ("device assert", ("device-side assert", "CUDA_ERROR_ASSERT"), r"device-side assert triggered|CUDA_ERROR_ASSERT"),
    ("device assert", ("] Assertion",), r"thread: \[[\d, ]+\] Assertion `(?P<condition>[^`]+)` failed"),
    ("device fault", ("Xid (",), r"NVRM: Xid \(\S+\): (?P<xid>48|63|64|74|79|92|94|95|119|120)\b"),
    (
        "shared memory",
        ("shared memory segment",),
        (
            r"Error while creating shared memory segment (?P<segment>\S+)(?!.*Permission denied)"
            r"(?: \(size (?P<bytes>\d+)\))?"
        ),
    ),
    (
        "shared memory",
        (
            "ncclShmOpen",
            "shared memory",
            "shm_open",
        ),
        r"\bncclShmOpen\b|unable to (?:open|allocate) shared memory|shm_open.*No space left",
    ),
    (
        "shared memory",
        (
            "posix_fallocate",
            "shared memory",
        ),
        r"posix_fallocate failed: No space left on device|insufficient shared memory \(shm\)",
    ),
    (
        "watchdog",
        ("watchdog timeout",),
        r"Scheduler watchdog timeout \((?:self\.)?watchdog_timeout=(?P<seconds>[\d.]+)",
    ),
    (
        "collective timeout",
        ("Watchdog caught",),
        r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout",
    ),
    ("watchdog", ("atchdog timeout",), r"[Ww]atchdog timeout"),
    ("shared memory", ("No space left",), r"No space left on device: '/?(?:psm_|sem\.|torch_|dev/shm/)"),
    ("memory for NCCL", ("Cuda failure",), r"Cuda failure (?:\d+ )?'out of memory'"),
    (
        "communication error",
        (
            "NCCL error",
            "ncclSystem",
            "ncclUnhandled",
            "ncclRemote",
        ),
        r"NCCL error: |ncclSystemError|ncclUnhandledCudaError|ncclRemoteError",
    ),
    (
        "kernel tile",
        ("out of resource: ",),
        r"out of resource: (?P<resource>[\w ]+), Required: (?P<required>\d+)(?:, Hardware limit: (?P<limit>\d+))?",
    ),
    ("kernel tile", ("resources requested",), r"too many resources requested for launch"),
    (
        "workspace",
        ("AlignedAllocator",),
        (
            r"Buffer overflow when allocating memory for (?P<what>\S+) with size (?P<wanted>\d+).*but only "
            r"(?P<left>\d+) bytes available in AlignedAllocator"
        ),
    ),
    (  # up to 0.10 at DEBUG only, and there an idle server says it too
        "waits for a worker",
        ("broadcast block found",),
        r"^(?!.*\bDEBUG ).*No available shared memory broadcast block found in (?P<seconds>\d+) second",
    ),
    (
        "health check failed",
        ("Health check failed",),
        r"Health check failed\. Server couldn't get a response from detokenizer for last (?P<seconds>\d+) seconds",
    ),
)
