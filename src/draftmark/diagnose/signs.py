"""Lines that tell of trouble, by what they are a sign of. Wording as engines, drivers, NCCL and the kernel write it.

Each sign has texts of which a line must have one before its regular expression is tried: looking for a text is much
faster, and most lines have none.
"""

import re
from typing import Final

import msgspec

from draftmark.observation import Phase, Source


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """One line that matched, in which phase, and the numbers in it."""

    name: str
    source: Source
    phase: Phase
    values: dict[str, str]

    def number(self, name: str) -> float | None:
        """A value as a number; None where the line does not have it."""
        text = self.values.get(name)
        return float(text.replace(",", "")) if text else None


_N: Final = r"-?[\d,]*\.?\d+"

PATTERNS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    # Sizing at the start
    (
        "pool below context",
        ("max seq len",),
        (
            rf"max seq len \((?P<context>{_N})\) is larger than the maximum number of tokens that can be stored in KV "
            rf"cache \((?P<tokens>{_N})\)"
        ),
    ),
    (
        "pool below context",
        ("KV cache is needed",),
        (
            rf"max seq len \((?P<context>{_N})\),? \(?(?P<needed>{_N}) GiB KV cache is needed, which is larger than "
            rf"the available KV cache memory \((?P<available>{_N}) GiB\)(?:.*?estimated maximum model length is "
            rf"(?P<possible>{_N}))?"
        ),
    ),
    (
        "pool below context",
        ("KV cache is needed",),
        (
            rf"(?P<needed>{_N}) GiB KV cache is needed,(?: which is)? larger than (?:the )?available"
            r"(?: KV cache memory)? "
            rf"\((?P<available>{_N}) GiB\)"
        ),
    ),
    ("no room", ("cache blocks",), r"No available memory for the cache blocks"),
    (
        "no room",
        ("--mem-fraction-static",),
        (
            r"Not enough memory\. Please try to increase --mem-fraction-static"
            rf"(?:.*mem_fraction_static=(?P<fraction>{_N}))?(?:.*weights fill >(?P<filled>\d+)% of HBM)?"
        ),
    ),
    (
        "no room",
        ("leave no GPU memory",),
        (
            r"Loaded weights leave no GPU memory for the KV cache under "
            rf"--mem-fraction-static=(?P<fraction>{_N}?)\.?(?:\s|$)"
            rf"(?:.*Raise --mem-fraction-static above (?P<suggested>{_N}))?(?:.*= (?P<minimum>0\.\d+)\))?"
        ),
    ),
    ("negative pool", ("Available KV cache memory",), rf"Available KV cache memory: (?P<available>-{_N}|-?0\.0+) GiB"),
    (
        "negative pool",
        ("reserved for KV Cache is",),
        rf"the rest of the memory reserved for KV Cache is (?P<available>-{_N}|0\.0+)GiB",
    ),
    ("negative pool", ("profiled value",), r"larger than the profiled value (?P<tokens>-\d+)"),
    ("no blocks", ("blocks: 0",), r"# (?:GPU|CUDA|cuda|cpu) blocks: 0\b"),
    (
        "memory taken",
        ("less than desired",),
        (
            rf"Free memory on device (?:(?P<device>\S+) )?\((?P<free>{_N})/(?P<capacity>{_N}) GiB\) on startup is less "
            rf"than desired GPU memory utilization \((?P<fraction>{_N}), (?P<wanted>{_N}) GiB\)"
        ),
    ),
    ("memory unbalanced", ("unbalanced",), r"The memory capacity is unbalanced"),
    (
        "state pool",
        ("hybrid (mamba",),
        (
            rf"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache\. Computed max_mamba_cache_size="
            rf"(?P<slots>-?\d+) \(total_rest_memory=(?P<rest>{_N}) GB, mamba_cache_per_req=(?P<each>{_N}) MB\)"
        ),
    ),
    (
        "state pool",
        ("max_num_reqs=0",),
        (
            r"max_mamba_cache_size=(?P<slots>\d+), mamba_ratio=(?P<each_request>\d+), resulting "
            r"max_num_reqs=(?P<requests>0)\b"
        ),
    ),
    (
        "state blocks",
        ("Mamba cache blocks",),
        r"max_num_seqs \((?P<requests>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
    ),
    ("window pool", ("cannot hold even one",), r"SWA pool \((?P<tokens>\d+) tokens\) cannot hold even one request"),
    (
        "window pool",
        ("DSV4 SWA pool cap",),
        r"The DSV4 SWA pool cap \((?P<tokens>\d+) tokens, .*leaves no room for the full KV pool",
    ),
    (
        "multimodal profile",
        ("too short to hold",),
        (
            r"sequence length used for profiling .*= (?P<length>\d+)\) is too short to hold the multi-modal "
            r"embeddings in the worst case \((?P<tokens>\d+) tokens"
        ),
    ),
    (
        "too few GPUs",
        (
            "out of bounds",
            "device ordinal",
        ),
        r"local rank \d+ is out of bounds|invalid device ordinal",
    ),
    (
        "host memory short",
        ("Not enough host memory",),
        rf"Not enough host memory.*?Requesting (?P<wanted>{_N}) GB but only have (?P<free>{_N}) GB free",
    ),
    # While it serves
    ("pool exhausted", ("lower your batch size",), r"\b[Oo]ut of memory(?: \([^)]*\))?\. Try to lower your batch size"),
    ("pool exhausted", ("after retracting all",), r"Out of memory even after retracting all other requests"),
    ("pool exhausted", ("runs out of memory",), r"alloc_req_slots runs out of memory"),
    (
        "pool full",
        ("Retract requests",),
        r"KV cache pool is full\. Retract requests\.(?: #retracted_reqs: (?P<requests>\d+))?",
    ),
    ("pool full", ("Decode out of memory",), r"Decode out of memory happened\. (?:Retract|#retracted_reqs)"),
    (
        "pool full",
        ("full token usage: 1.00",),
        r"#full token: (?P<tokens>\d+), full token usage: 1\.00, #swa token: \d+, swa token usage: (?P<window>0\.\d+)",
    ),
    (
        "request beyond limit",
        ("maximum allowed length",),
        r"Input length \((?P<length>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+) tokens\)",
    ),
    (
        "sleep residual",
        ("still in use",),
        rf"Sleep mode freed (?P<freed>{_N}) GiB(?: memory)?, (?P<residual>{_N}) GiB memory is still in use",
    ),
    ("sleep residual", ("still in use",), rf"\bStep \d+: (?:around )?(?P<residual>{_N}) GiB memory is still in use"),
    (
        "warm-up sampler",
        ("when warming up",),
        r"out of memory occurred when warming up (?P<what>sampler|pooler).*?with (?P<requests>\d+) dummy",
    ),
    ("graph capture failed", ("graph failed: ",), r"Capture (?:cuda|CUDA|cpu|CPU|prefill CUDA) graph failed: "),
    ("graph capture failed", ("CUDA OOM",), r"torch\.cuda\.graph\(.*CUDA OOM|capture_model\b.*CUDA OOM"),
    ("pool allocation failed", ("for kv cache",), r"failed to allocate buffer for kv cache"),
    (
        "pool asked",
        ("KV blocks (",),
        r"Allocating (?P<blocks>\d+) KV blocks \((?P<mib>\d+) MB\) for \[(?P<requests>\d+) seqs? x (?P<context>\d+)",
    ),
    # What is not memory but looks like it
    (
        "illegal access",
        (
            "illegal memory access",
            "ILLEGAL_ADDRESS",
        ),
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    ("illegal access", ("Xid (",), r"NVRM: Xid \(\S+\): (?P<xid>31|13)\b"),
    ("device fault", ("Xid (",), r"NVRM: Xid \(\S+\): (?P<xid>48|63|64|74|79|92|94|95|119|120)\b"),
    (
        "shared memory",
        ("shared memory segment",),
        r"Error while creating shared memory segment (?P<segment>\S+)(?: \(size (?P<bytes>\d+)\))?",
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
    (
        "oom killer",
        ("Kill",),
        (
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (?:\d+ )?\((?P<program>[^)]+)\)"
            r"(?:.*anon-rss:(?P<kib>\d+)kB)?"
        ),
    ),
    ("oom killer", ("oom-kill",), r"invoked oom-killer|oom-kill:constraint="),
    (
        "killed",
        (
            "Killed",
            "code 137",
            "code: 137",
            "code -9",
            "code: -9",
        ),
        r":\s*(?:line )?\d*:?\s*\d+ Killed\b|^Killed$|exited with code 137|[Ee]xit ?code:? (?:137|-9)\b|code 137\b",
    ),
    (
        "worker died",
        ("died unexpectedly",),
        r"Worker proc (?P<worker>\S+) died unexpectedly(?: \(exit code: (?P<code>-?\w+)\))?",
    ),
    (
        "asked to end",
        (
            "SIGTERM",
            "signal=SIG",
            "Gracefully",
        ),
        r"SIGTERM received|\[shutdown\] \w+: trigger received signal=SIG(?:TERM|INT)|Gracefully exiting",
    ),
    (
        "ended itself",
        (
            "kill_process_tree",
            "SIGQUIT",
            "sigquit",
        ),
        r"kill_process_tree called|SIGQUIT received|Received sigquit from a child process",
    ),
    ("shared memory", ("No space left",), r"No space left on device: '/?(?:psm_|sem\.|torch_|dev/shm/)"),
    ("address in use", ("ddress already",), r"[Aa]ddress already in use"),
    ("not installed", ("No module named",), r"No module named '?(?P<module>sglang|vllm|draftmark|torch)\b"),
    ("disk full", ("No space left",), r"No space left on device"),
    (
        "illegal instruction",
        (
            "llegal instruction",
            "SIGILL",
        ),
        r"[Ii]llegal instruction|SIGILL",
    ),
    ("no kernel image", ("kernel image",), r"no kernel image is available for execution on the device"),
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
)
_COMPILED: Final = tuple((name, texts, re.compile(pattern)) for name, texts, pattern in PATTERNS)

TEXTS: Final = tuple({text: None for _, texts, _ in PATTERNS for text in texts})
"""Every text that a sign needs."""
_ANY: Final = re.compile("|".join(map(re.escape, TEXTS)))


def read(line: str) -> list[tuple[str, dict[str, str]]]:
    """Everything that one line is a sign of, with the values that it states."""
    if _ANY.search(line) is None:
        return []
    return [
        (name, {key: value for key, value in found.groupdict().items() if value is not None})
        for name, texts, pattern in _COMPILED
        if any(text in line for text in texts) and (found := pattern.search(line))
    ]
