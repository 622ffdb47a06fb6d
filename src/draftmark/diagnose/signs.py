"""Lines that tell of trouble, by what they are a sign of. Wording as engines, drivers, NCCL and the kernel write it."""

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

PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    # Sizing at the start
    (
        "pool below context",
        (
            rf"max seq len \((?P<context>{_N})\) is larger than the maximum number of tokens that can be stored in KV "
            rf"cache \((?P<tokens>{_N})\)"
        ),
    ),
    (
        "pool below context",
        (
            rf"max seq len \((?P<context>{_N})\),? \(?(?P<needed>{_N}) GiB KV cache is needed, which is larger than "
            rf"the available KV cache memory \((?P<available>{_N}) GiB\)(?:.*?estimated maximum model length is "
            rf"(?P<possible>{_N}))?"
        ),
    ),
    (
        "pool below context",
        (
            rf"(?P<needed>{_N}) GiB KV cache is needed,(?: which is)? larger than (?:the )?available"
            r"(?: KV cache memory)? "
            rf"\((?P<available>{_N}) GiB\)"
        ),
    ),
    ("no room", r"No available memory for the cache blocks"),
    (
        "no room",
        (
            r"Not enough memory\. Please try to increase --mem-fraction-static"
            rf"(?:.*mem_fraction_static=(?P<fraction>{_N}))?(?:.*weights fill >(?P<filled>\d+)% of HBM)?"
        ),
    ),
    (
        "no room",
        (
            r"Loaded weights leave no GPU memory for the KV cache under "
            rf"--mem-fraction-static=(?P<fraction>{_N}?)\.?(?:\s|$)"
            rf"(?:.*Raise --mem-fraction-static above (?P<suggested>{_N}))?(?:.*= (?P<minimum>0\.\d+)\))?"
        ),
    ),
    ("negative pool", rf"Available KV cache memory: (?P<available>-{_N}|-?0\.0+) GiB"),
    ("negative pool", rf"the rest of the memory reserved for KV Cache is (?P<available>-{_N}|0\.0+)GiB"),
    ("negative pool", r"larger than the profiled value (?P<tokens>-\d+)"),
    ("no blocks", r"# (?:GPU|CUDA|cuda|cpu) blocks: 0\b"),
    (
        "memory taken",
        (
            rf"Free memory on device (?:(?P<device>\S+) )?\((?P<free>{_N})/(?P<capacity>{_N}) GiB\) on startup is less "
            rf"than desired GPU memory utilization \((?P<fraction>{_N}), (?P<wanted>{_N}) GiB\)"
        ),
    ),
    ("memory unbalanced", r"The memory capacity is unbalanced"),
    (
        "state pool",
        (
            rf"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache\. Computed max_mamba_cache_size="
            rf"(?P<slots>-?\d+) \(total_rest_memory=(?P<rest>{_N}) GB, mamba_cache_per_req=(?P<each>{_N}) MB\)"
        ),
    ),
    (
        "state pool",
        (
            r"max_mamba_cache_size=(?P<slots>\d+), mamba_ratio=(?P<each_request>\d+), resulting "
            r"max_num_reqs=(?P<requests>0)\b"
        ),
    ),
    (
        "state blocks",
        r"max_num_seqs \((?P<requests>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
    ),
    ("window pool", r"SWA pool \((?P<tokens>\d+) tokens\) cannot hold even one request"),
    ("window pool", r"The DSV4 SWA pool cap \((?P<tokens>\d+) tokens, .*leaves no room for the full KV pool"),
    (
        "multimodal profile",
        (
            r"sequence length used for profiling .*= (?P<length>\d+)\) is too short to hold the multi-modal "
            r"embeddings in the worst case \((?P<tokens>\d+) tokens"
        ),
    ),
    ("too few GPUs", r"local rank \d+ is out of bounds|invalid device ordinal"),
    (
        "host memory short",
        rf"Not enough host memory.*?Requesting (?P<wanted>{_N}) GB but only have (?P<free>{_N}) GB free",
    ),
    # While it serves
    ("pool exhausted", r"\b[Oo]ut of memory(?: \([^)]*\))?\. Try to lower your batch size"),
    ("pool exhausted", r"Out of memory even after retracting all other requests"),
    ("pool exhausted", r"alloc_req_slots runs out of memory"),
    ("pool full", r"KV cache pool is full\. Retract requests\.(?: #retracted_reqs: (?P<requests>\d+))?"),
    ("pool full", r"Decode out of memory happened\. (?:Retract|#retracted_reqs)"),
    (
        "pool full",
        r"#full token: (?P<tokens>\d+), full token usage: 1\.00, #swa token: \d+, swa token usage: (?P<window>0\.\d+)",
    ),
    (
        "request beyond limit",
        r"Input length \((?P<length>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+) tokens\)",
    ),
    (
        "sleep residual",
        rf"Sleep mode freed (?P<freed>{_N}) GiB(?: memory)?, (?P<residual>{_N}) GiB memory is still in use",
    ),
    ("sleep residual", rf"\bStep \d+: (?:around )?(?P<residual>{_N}) GiB memory is still in use"),
    (
        "warm-up sampler",
        r"out of memory occurred when warming up (?P<what>sampler|pooler).*?with (?P<requests>\d+) dummy",
    ),
    ("graph capture failed", r"Capture (?:cuda|CUDA|cpu|CPU|prefill CUDA) graph failed: "),
    ("graph capture failed", r"torch\.cuda\.graph\(.*CUDA OOM|capture_model\b.*CUDA OOM"),
    ("pool allocation failed", r"failed to allocate buffer for kv cache"),
    (
        "pool asked",
        r"Allocating (?P<blocks>\d+) KV blocks \((?P<mib>\d+) MB\) for \[(?P<requests>\d+) seqs? x (?P<context>\d+)",
    ),
    # What is not memory but looks like it
    ("illegal access", r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("illegal access", r"NVRM: Xid \(\S+\): (?P<xid>31|13)\b"),
    ("device fault", r"NVRM: Xid \(\S+\): (?P<xid>48|63|64|74|79|92|94|95|119|120)\b"),
    ("shared memory", r"Error while creating shared memory segment (?P<segment>\S+)(?: \(size (?P<bytes>\d+)\))?"),
    ("shared memory", r"\bncclShmOpen\b|unable to (?:open|allocate) shared memory|shm_open.*No space left"),
    ("shared memory", r"posix_fallocate failed: No space left on device|insufficient shared memory \(shm\)"),
    ("watchdog", r"Scheduler watchdog timeout \((?:self\.)?watchdog_timeout=(?P<seconds>[\d.]+)"),
    ("watchdog", r"Watchdog caught collective operation timeout.*?Timeout\(ms\)=(?P<milliseconds>\d+)"),
    ("watchdog", r"[Ww]atchdog timeout"),
    (
        "oom killer",
        (
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (?:\d+ )?\((?P<program>[^)]+)\)"
            r"(?:.*anon-rss:(?P<kib>\d+)kB)?"
        ),
    ),
    ("oom killer", r"invoked oom-killer|oom-kill:constraint="),
    (
        "killed",
        r":\s*(?:line )?\d*:?\s*\d+ Killed\b|^Killed$|exited with code 137|[Ee]xit ?code:? (?:137|-9)\b|code 137\b",
    ),
    ("worker died", r"Worker proc (?P<worker>\S+) died unexpectedly(?: \(exit code: (?P<code>-?\w+)\))?"),
    ("asked to end", r"SIGTERM received|\[shutdown\] \w+: trigger received signal=SIG(?:TERM|INT)|Gracefully exiting"),
    ("ended itself", r"kill_process_tree called|SIGQUIT received|Received sigquit from a child process"),
    ("address in use", r"[Aa]ddress already in use"),
    ("not installed", r"No module named '?(?P<module>sglang|vllm|draftmark|torch)\b"),
    ("disk full", r"No space left on device"),
    ("illegal instruction", r"[Ii]llegal instruction|SIGILL"),
    ("no kernel image", r"no kernel image is available for execution on the device"),
    ("communication error", r"NCCL error: |ncclSystemError|ncclUnhandledCudaError|ncclRemoteError"),
)
_COMPILED: Final = tuple((name, re.compile(pattern)) for name, pattern in PATTERNS)

HINTS: Final = (
    "rror", "xception", "emory", "KV", "kv cache", "Killed", "illed", "atchdog", "Xid", "shm", "shared mem", "OOM",
    "is full", "usage: 1.00", "blocks: 0", "unbalanced", "out of bounds", "ordinal", "mamba", "Mamba", "SWA",
    "too short", "Retract", "still in use", "raph failed", "Allocating", "illegal", "llegal", "137", "died unexp",
    "sigquit", "SIGQUIT", "kill_process", "in use", "No module", "No space", "kernel image", "NCCL", "nccl",
    "SIGTERM", "signal=SIG", "Gracefully",
    "exceeds", "retract", "oom-kill", "larger than", "profiled value", "code -9", "code: -9", "runs out", "SIGILL",
)  # fmt: skip
"""A line without any of these is no sign of anything; looking for them is much faster than all the patterns."""


def read(line: str, source: Source, phase: Phase) -> tuple[Sign, ...]:
    """Everything that one line is a sign of."""
    if not any(hint in line for hint in HINTS):
        return ()
    return tuple(
        Sign(
            name=name,
            source=source,
            phase=phase,
            values={key: value for key, value in found.groupdict().items() if value is not None},
        )
        for name, pattern in _COMPILED
        if (found := pattern.search(line))
    )
