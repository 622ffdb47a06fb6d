"""Every line of SGLang that states memory, by version, as the wheels write it; and whole starts."""

import pytest

from draftmark.engines.sglang_log import SglangReader
from draftmark.engines.sglang_memory import ledgers, pool
from draftmark.ledger import Pool
from draftmark.observation import Observation, Phase
from draftmark.units import GIB


def gib(value: float) -> int:
    return round(value * GIB)


def stated(line: str) -> dict[str, float | int | str]:
    return {seen.quantity: seen.value for seen in SglangReader("log").feed(line, 1)}


STAMP = "[2026-05-02 10:00:00 TP3] "

LINES: list[tuple[str, str, dict[str, float | int | str]]] = [
    ("0.4.6.post5", "Init torch distributed ends. mem usage=1.53 GB", {"communication": gib(1.53)}),
    (
        "0.5.9",
        "Init torch distributed ends. elapsed=4.21 s, mem usage=0.51 GB",
        {"communication": gib(0.51), "elapsed": 4.21},
    ),
    ("0.5.23", "Init parallel ends. elapsed=4.21 s", {"elapsed": 4.21}),
    ("0.5.23", "Memory baseline taken. mem usage=-0.02 GB", {"baseline": gib(-0.02)}),
    ("0.4.0", "Load weight begin. avail mem=78.58 GB", {"free": gib(78.58)}),
    (
        "0.4.0",
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.55 GB",
        {"model_class": "LlamaForCausalLM", "dtype": "torch.bfloat16", "free": gib(63.55)},
    ),
    (
        "0.4.6",
        "Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=6.09 GB, mem usage=15.54 GB.",
        {
            "model_class": "Qwen2ForCausalLM",
            "dtype": "torch.bfloat16",
            "free": gib(6.09),
            "weights": gib(15.54),
        },
    ),
    (
        "0.5.9",
        (
            "Load weight end. elapsed=53.90 s, type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=61.00 GB, mem "
            "usage=14.98 GB."
        ),
        {
            "elapsed": 53.9,
            "model_class": "LlamaForCausalLM",
            "dtype": "torch.bfloat16",
            "free": gib(61.0),
            "weights": gib(14.98),
        },
    ),
    (
        "0.5.12",
        (
            "Load weight end. elapsed=100.59 s, type=DeepseekV3ForCausalLM, quant=fp8, fmt=e4m3, avail mem=12.25 GB, "
            "mem usage=125.65 GB."
        ),
        {
            "elapsed": 100.59,
            "model_class": "DeepseekV3ForCausalLM",
            "free": gib(12.25),
            "weights": gib(125.65),
        },
    ),
    (
        "0.5.16",
        "Load weight end. Committed real weights after CUDA graph capture in 12.50 s",
        {"elapsed": 12.5},
    ),
    ("0.4.3", "KV Cache is allocated. K size: 1.42 GB, V size: 1.42 GB.", {"pool_bytes": 2 * gib(1.42)}),
    (
        "0.4.6",
        "KV Cache is allocated. #tokens: 46611, K size: 1.42 GB, V size: 1.42 GB",
        {"pool_tokens": 46611, "pool_bytes": 2 * gib(1.42)},
    ),
    (
        "0.4.6 MLA",
        "KV Cache is allocated. #tokens: 274934, KV size: 17.99 GB",
        {"pool_tokens": 274934, "pool_bytes": gib(17.99)},
    ),
    (
        "0.5.16",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 535124, K size: 16.33 GB, V size: 16.33 GB",
        {"pool_tokens": 535124, "pool_bytes": 2 * gib(16.33), "kv_dtype": "torch.bfloat16"},
    ),
    (
        "0.5.16 MLA",
        "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 1933682, KV size: 12.45 GB",
        {"pool_tokens": 1933682, "pool_bytes": gib(12.45), "kv_dtype": "torch.float8_e4m3fn"},
    ),
    (
        "0.5.20 labelled",
        "Draft KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100, KV size: 1.00 GB",
        {"pool_tokens": 100, "pool_bytes": gib(1), "kv_dtype": "torch.bfloat16"},
    ),
    (
        "0.5.20 virtual",
        "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 273000, KV size: 17.00 GB",
        {"pool_bound": 273000, "kv_dtype": "torch.bfloat16"},
    ),
    (
        "0.5.12",
        "KV Cache skipped (no-op pool). Logical #tokens: 4096, physical K/V size: ~1.0 KB placeholder",
        {"pool_tokens": 4096},
    ),
    (
        "0.4.9",
        "Use Sliding window memory pool. full_layer_tokens=997846, swa_layer_tokens=798276",
        {"full_tokens": 997846, "window_tokens": 798276},
    ),
    (
        "0.5.9",
        "Use sliding window memory pool (all SWA). swa_layer_tokens=798276",
        {"window_tokens": 798276},
    ),
    (
        "0.5.6",
        "SWAKVPool mem usage: 79.94 GB, swa size: 798276, full size: 997846",
        {"windowed_pool": gib(79.94), "window_tokens": 798276, "full_tokens": 997846},
    ),
    ("0.5.20", "SWAKVPool VA upper bound: 79.94 GB, swa size: 798276, full size: 997846", {}),
    (
        "0.5.3",
        "Mamba Cache is allocated. conv_state size: 0.09GB, ssm_state size: 6.46GB ",
        {"state_pool_bytes": gib(0.09) + gib(6.46)},
    ),
    (
        "0.5.6",
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.09GB, ssm_state size: 6.46GB "
            "intermediate_ssm_state_cache size: 1.00GB intermediate_conv_window_cache size: 0.50GB "
        ),
        {"state_slots": 48, "state_pool_bytes": gib(0.09) + gib(6.46) + gib(1) + gib(0.5)},
    ),
    (
        "0.5.15",
        (
            "DSV4 memory calculation: bytes_per_full_token=1234.50, available_bytes=12.00 GB, c128_state_fixed=0.1 GB, "
            "full_token=19968"
        ),
        {"bytes_per_token": 1234, "pool_budget": gib(12), "full_tokens": 19968},
    ),
    (
        "0.5.12",
        "DSV4 pool sizes: full=19968, swa=4864, c4=4992, c128=156, c4_state=608, c128_state=0",
        {"full_tokens": 19968, "window_tokens": 4864},
    ),
    ("0.4.0", "Memory pool end. avail mem=2.09 GB", {"free": gib(2.09)}),
    ("0.4.0", "Capture cuda graph begin. This can take up to several minutes.", {}),
    (
        "0.4.6",
        "Capture cuda graph begin. This can take up to several minutes. avail mem=1.45 GB",
        {"free": gib(1.45)},
    ),
    ("0.4.0", "Capture cuda graph end. Time elapsed: 12.30 s", {"elapsed": 12.3}),
    (
        "0.4.9",
        "Capture cuda graph end. Time elapsed: 33.10 s. mem usage=6.20 GB. avail mem=3.10 GB.",
        {"elapsed": 33.1, "graphs": gib(6.2), "free": gib(3.1)},
    ),
    (
        "0.4.6.post5",
        "Capture draft cuda graph end. Time elapsed: 3.10 s. avail mem=3.10 GB. mem usage=0.20 GB.",
        {"elapsed": 3.1, "graphs": gib(0.2), "free": gib(3.1)},
    ),
    (
        "0.5.15.post1",
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=6, bs=[1, 2, 3], avail mem=7.77 GB",
        {"captured": 3, "free": gib(7.77)},
    ),
    (
        "0.5.16",
        "Capture target decode CUDA graph end. elapsed=4.83 s, mem usage=0.24 GB, avail mem=7.28 GB.",
        {"elapsed": 4.83, "graphs": gib(0.24), "free": gib(7.28)},
    ),
    (
        "0.5.23",
        "Capture target decode CUDA graph end. bs=[1, 2, 4], elapsed=4.83 s, mem usage=-0.01 GB, avail mem=7.28 GB.",
        {"elapsed": 4.83, "graphs": gib(-0.01), "free": gib(7.28)},
    ),
    (
        "0.5.9",
        "Capture piecewise CUDA graph end. Time elapsed: 30.54 s. mem usage=1.38 GB. avail mem=19.66 GB.",
        {"elapsed": 30.54, "graphs": gib(1.38), "free": gib(19.66)},
    ),
    (
        "0.5.16 prefill",
        "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8192], avail mem=11.78 GB",
        {"captured": 8192, "free": gib(11.78)},
    ),
    (
        "0.4.6 bar",
        "Capturing batches (avail_mem=3.00 GB):   0%|  | 0/23\rCapturing batches (avail_mem=2.10 GB):  50%|# | 12/23",
        {"free": gib(2.1)},
    ),
    ("0.5.6 bar", "Capturing num tokens (num_tokens=8192 avail_mem=11.78 GB):   0%|", {"free": gib(11.78)}),
    ("0.5.23 bar", "Capturing prefill shape (num_tokens=8192 avail_mem=1.78 GB):   0%|", {"free": gib(1.78)}),
    (
        "0.5.16",
        "Post-capture KV sizing: max_total_num_tokens=100000, free memory=12.00 GB",
        {"pool_tokens": 100000, "free": gib(12)},
    ),
    (
        "0.5.20",
        "Post-capture KV sizing: full_layer_tokens=100000, swa_layer_tokens=80000",
        {"full_tokens": 100000, "window_tokens": 80000},
    ),
    (
        "0.5.20",
        (
            "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 7.00 GB, avail "
            "mem=3.00 GB"
        ),
        {"kv_dtype": "torch.bfloat16", "pool_tokens": 9, "pool_bytes": gib(7), "free": gib(3)},
    ),
    (
        "0.4.0",
        "max_total_num_tokens=42, max_prefill_tokens=16384, max_running_requests=2049, context_len=8192",
        {"pool_tokens": 42, "max_running": 2049, "context_length": 8192},
    ),
    (
        "0.4.9",
        (
            "max_total_num_tokens=2618868, chunked_prefill_size=-1, max_prefill_tokens=16384, max_running_requests=48, "
            "context_len=16384, available_gpu_mem=13.38 GB"
        ),
        {"pool_tokens": 2618868, "chunk": -1, "max_running": 48, "context_length": 16384, "free": gib(13.38)},
    ),
    (
        "0.4.9",
        "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
        {"pool_tokens_asked": 131072, "profiled": -561981},
    ),
    (
        "0.5.20",
        (
            "max_running_requests is capped to 4 by the mamba state cache (max_mamba_cache_size=20, 5 state slots per "
            "request)."
        ),
        {"max_running": 4, "state_slots": 20},
    ),
    (
        "0.5.16",
        (
            "max_running_requests was reduced from the requested 64 to 8 (per dp worker) due to the available KV cache "
            "capacity."
        ),
        {"max_running": 8},
    ),
    (
        "0.5.20",
        "Reserving 1.10 GB of the KV budget for post-sizing multimodal allocations",
        {"multimodal": gib(1.1)},
    ),
]


@pytest.mark.parametrize(("version", "line", "expected"), LINES, ids=[f"{line[0]} {line[1][:40]}" for line in LINES])
def test_every_template(version: str, line: str, expected: dict[str, float | int | str]) -> None:
    assert stated(STAMP + line) == expected
    assert {seen.rank for seen in SglangReader("log").feed(STAMP + line, 1)} <= {3}


def test_arguments_as_resolved_begin_a_start() -> None:
    old = (
        "[2026-05-02 10:00:00] server_args=ServerArgs(model_path='/m', page_size=1, mem_fraction_static=0.93, "
        "max_running_requests=None, chunked_prefill_size=4096, tp_size=8, disable_cuda_graph=False)"
    )
    new = "server_args={'model_path': '/m', 'mem_fraction_static': 0.93, 'chunked_prefill_size': 4096, 'tp_size': 8}"
    for line in (old, new):
        seen = stated(line)
        assert seen["start"] == "sglang"
        assert (seen["model"], seen["memory_fraction"], seen["chunk"], seen["tensor_parallel"]) == ("/m", 0.93, 4096, 8)
        assert "max_running" not in seen


def test_a_memory_line_that_is_not_understood_is_reported() -> None:
    seen = stated("[2026-05-02 10:00:00 TP0] Quantum cache is entangled. size: 3.50 GB")
    assert seen == {"not_understood": "[2026-05-02 10:00:00 TP0] Quantum cache is entangled. size: 3.50 GB"}
    assert stated("Downloading: 3.50 GB of other things") == {}


WHOLE = """\
[2026-05-02 10:00:00] server_args=ServerArgs(model_path='/m', page_size=64, mem_fraction_static=0.9, tp_size=2)
[2026-05-02 10:00:00 TP0] Init torch distributed begin.
[2026-05-02 10:00:04 TP0] Init torch distributed ends. elapsed=4.00 s, mem usage=1.50 GB
[2026-05-02 10:00:04 TP1] Init torch distributed ends. elapsed=4.00 s, mem usage=1.50 GB
[2026-05-02 10:00:04 TP0] Load weight begin. avail mem=77.00 GB
[2026-05-02 10:00:04 TP1] Load weight begin. avail mem=76.00 GB
[2026-05-02 10:00:40 TP0] Load weight end. elapsed=36.00 s, type=A, avail mem=47.00 GB, mem usage=30.00 GB.
[2026-05-02 10:00:40 TP1] Load weight end. elapsed=36.00 s, type=A, avail mem=46.00 GB, mem usage=30.00 GB.
[2026-05-02 10:00:41 TP0] Load weight begin. avail mem=47.00 GB
[2026-05-02 10:00:42 TP0] Load weight end. elapsed=1.00 s, type=ADraft, avail mem=45.00 GB, mem usage=2.00 GB.
[2026-05-02 10:00:42 TP1] Load weight end. elapsed=1.00 s, type=ADraft, avail mem=44.00 GB, mem usage=2.00 GB.
[2026-05-02 10:00:43 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100032, KV size: 30.00 GB
[2026-05-02 10:00:43 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100032, KV size: 30.00 GB
[2026-05-02 10:00:43 TP0] Memory pool end. avail mem=14.50 GB
[2026-05-02 10:00:43 TP1] Memory pool end. avail mem=13.50 GB
[2026-05-02 10:00:43 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100032, KV size: 1.00 GB
[2026-05-02 10:00:43 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100032, KV size: 1.00 GB
[2026-05-02 10:00:43 TP0] Memory pool end. avail mem=13.50 GB
[2026-05-02 10:00:43 TP1] Memory pool end. avail mem=12.50 GB
[2026-05-02 10:00:44 TP0] Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=6, avail mem=13.00 GB
[2026-05-02 10:00:44 TP1] Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=6, avail mem=12.00 GB
[2026-05-02 10:00:50 TP0] Capture target verify CUDA graph end. elapsed=6.00 s, mem usage=2.00 GB, avail mem=11.00 GB.
[2026-05-02 10:00:50 TP1] Capture target verify CUDA graph end. elapsed=6.00 s, mem usage=2.00 GB, avail mem=10.00 GB.
[2026-05-02 10:00:51 TP0] max_total_num_tokens=100032, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=48, context_len=131072, available_gpu_mem=11.00 GB
[2026-05-02 10:00:51] INFO:     Application startup complete.
[2026-05-02 10:00:52 TP0] Prefill batch. #new-seq: 1, #new-token: 6
[2026-05-02 10:00:53] The server is fired up and ready to roll!
[2026-05-02 10:00:54 TP0] Prefill batch. #new-seq: 1, #new-token: 8192
[2026-05-02 10:00:55 TP0] Decode batch, #running-req: 1
"""


def read(text: str) -> tuple[tuple[Observation, ...], list[Phase]]:
    reader = SglangReader("log")
    seen: list[Observation] = []
    phases: list[Phase] = []
    for number, line in enumerate(text.splitlines(), 1):
        seen += reader.feed(line, number)
        if not phases or phases[-1] != reader.phase:
            phases.append(reader.phase)
    return tuple(seen), phases


def test_a_start_with_a_draft_on_two_ranks() -> None:
    seen, phases = read(WHOLE)
    assert phases == ["init", "weights", "pool", "weights", "pool", "graphs", "warm-up", "ready", "prefill", "decode"]
    worst, other = ledgers(seen)
    assert (worst.rank, other.rank) == (1, 0)
    amounts = {entry.account: entry.bytes for entry in other.entries}
    assert amounts == {
        "communication": gib(1.5),
        "weights": gib(30),
        "draft weights": gib(2),
        "pool": gib(30),
        "draft pool": gib(1),
        "request tables": gib(0.5),
        "workspace": gib(0.5),
        "graphs": gib(2),
        "unexplained": 0,
        "free": gib(11),
    }
    assert pool(seen) == Pool(tokens=100032, bytes=gib(30), page=64)  # type: ignore[arg-type]


def test_only_the_last_of_several_starts_counts() -> None:
    seen, _ = read(WHOLE + WHOLE.replace("100032", "90048").replace("KV size: 30.00", "KV size: 27.00"))
    assert pool(seen) == Pool(tokens=90048, bytes=gib(27), page=64)  # type: ignore[arg-type]
    assert len(ledgers(seen)) == 2


def test_a_known_capacity_adds_the_context() -> None:
    seen, _ = read(WHOLE)
    device = Observation(quantity="capacity", value=gib(80), unit="bytes", source=seen[0].source)
    (worst, _) = ledgers((*seen, device))
    assert worst.capacity == gib(80)
    assert worst.amount("context") == gib(80) - gib(76) - gib(1.5)
