"""Signs of trouble while an engine makes its pool, captures graphs, warms up and serves."""

from typing import Final

from draftmark.diagnose.signs.pattern import N, Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    ("pool exhausted", ("lower your batch size",), r"\b[Oo]ut of memory(?: \([^)]*\))?\. Try to lower your batch size"),
    ("pool exhausted", ("after retracting all",), r"Out of memory even after retracting all other requests"),
    ("pool exhausted", ("runs out of memory",), r"alloc_req_slots runs out of memory"),
    (
        "pool full",
        ("Retract requests",),
        r"KV cache pool is full\. Retract requests\.(?: #retracted_reqs: (?P<requests>\d+))?",
    ),
    ("pool full", ("Decode out of memory",), r"Decode out of memory happened\. (?:Retract|#retracted_reqs)"),
    (  # vLLM's first engine, up to 0.10
        "pool full",
        ("is preempted by",),
        r"Sequence group \S+ is preempted by (?P<mode>\S+) mode because there is not enough KV cache space",
    ),
    ("pool full", ("Preemptions: ",), r", Preemptions: (?P<requests>[1-9]\d*)"),
    (
        "pool full",
        ("full token usage: 1.00",),
        r"#full token: (?P<tokens>\d+), full token usage: 1\.00, #swa token: \d+, swa token usage: (?P<window>0\.\d+)",
    ),
    (  # vLLM since 0.8, of the step that failed
        "step",
        ("total_num_scheduled_tokens=",),
        r"[ ,(]num_scheduled_tokens=\{(?P<each>[^}]*)\}, ?total_num_scheduled_tokens=(?P<total>\d+)",
    ),
    (
        "request beyond limit",
        ("maximum allowed length",),
        r"Input length \((?P<length>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+) tokens\)",
    ),
    (
        "sleep residual",
        ("still in use",),
        rf"Sleep mode freed (?P<freed>{N}) GiB(?: memory)?, (?P<residual>{N}) GiB memory is still in use",
    ),
    (
        "sleep residual",
        ("still in use",),
        rf"\bStep \d+: (?:around )?(?P<residual>{N}) GiB memory is still in use",
    ),
    (
        "warm-up sampler",
        ("when warming up",),
        r"out of memory occurred when warming up (?P<what>sampler|pooler).*?with (?P<requests>\d+) dummy",
    ),
    ("graph capture failed", ("graph failed: ",), r"Capture (?:cuda|CUDA|cpu|CPU|prefill CUDA) graph failed: "),
    ("graph capture failed", ("CUDA OOM",), r"torch\.cuda\.graph\(.*CUDA OOM|capture_model\b.*CUDA OOM"),
    ("prefill graphs failed", ("for prefill runner",), r"Fail when using backend: \S+ for prefill runner"),
    ("pool allocation failed", ("for kv cache",), r"failed to allocate buffer for kv cache"),
    (
        "pool asked",
        ("KV blocks (",),
        r"Allocating (?P<blocks>\d+) KV blocks \((?P<mib>\d+) MB\) for \[(?P<requests>\d+) seqs? x (?P<context>\d+)",
    ),
)
