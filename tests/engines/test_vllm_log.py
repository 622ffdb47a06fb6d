"""Every line of vLLM that states memory, by version, as public logs and the wheels have it; and whole starts."""

from pathlib import Path

import pytest

from draftmark.engines.vllm_log import VllmReader
from draftmark.engines.vllm_memory import ledgers, pool
from draftmark.observation import Observation, Phase
from draftmark.units import GIB

LOGS = Path(__file__).parents[1] / "data" / "logs" / "vllm-0.32.0-cpu"
OLD = "INFO 12-20 20:25:46 worker.py:241] "
V1 = "(EngineCore pid=245) INFO 04-22 01:35:43 [gpu_worker.py:436] "


def gib(value: float) -> int:
    return round(value * GIB)


def stated(line: str) -> dict[str, float | int | str]:
    return {seen.quantity: seen.value for seen in VllmReader("log").feed(line, 1)}


LINES: list[tuple[str, str, dict[str, float | int | str]]] = [
    ("0.6", OLD + "Loading model weights took 14.9888 GB", {"weights": gib(14.9888)}),
    (
        "0.8.5",
        V1 + "Model loading took 16.05 GiB and 12.5 seconds",
        {"weights": gib(16.05), "elapsed": 12.5},
    ),
    (
        "0.12",
        V1 + "Model loading took 13.64 GiB memory and 4.123 seconds",
        {"weights": gib(13.64), "elapsed": 4.123},
    ),
    ("0.19", V1 + "Chunked prefill is enabled with max_num_batched_tokens=8192.", {"chunk": 8192}),
    (
        "0.7",
        OLD + "the current vLLM instance can use total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.90) = 7.20GiB",
        {"capacity": gib(8), "memory_fraction": 0.9, "budget": gib(7.2)},
    ),
    (
        "0.7",
        (
            "model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes "
            "1.42GiB; the "
            "rest of the memory reserved for KV Cache is -1.05GiB."
        ),
        {
            "weights": gib(5.2),
            "communication": gib(0.03),
            "activations": gib(1.42),
            "pool_bytes": gib(-1.05),
        },
    ),
    ("0.6", OLD + "# GPU blocks: 229, # CPU blocks: 512", {"blocks": 229}),
    ("0.7", OLD + "# cuda blocks: 0, # CPU blocks: 4681", {"blocks": 0}),
    ("0.10", V1 + "Available KV cache memory: 58.47 GiB", {"pool_bytes": gib(58.47)}),
    ("0.10", V1 + "Available KV cache memory: -2.14 GiB", {"pool_bytes": gib(-2.14)}),
    ("0.8.5", V1 + "GPU KV cache size: 1,277,184 tokens", {"pool_tokens": 1277184}),
    (
        "0.6.6",
        V1 + "Maximum concurrency for 8,192 tokens per request: 155.91x",
        {"context_length": 8192, "concurrency": 155.91},
    ),
    (
        "0.30",
        V1 + "GPU KV cache size: 523,008 tokens, Maximum concurrency for 131,072 tokens per request: 3.99x",
        {"pool_tokens": 523008, "context_length": 131072, "concurrency": 3.99},
    ),
    (
        "0.30 with host",
        V1 + "GPU + host KV cache size: 5,008 tokens, Maximum concurrency for 1,024 tokens per request: 4.89x",
        {"pool_tokens": 5008, "context_length": 1024, "concurrency": 4.89},
    ),
    ("0.10", V1 + "Multiplying the GPU KV cache size by the dcp_world_size 4.", {"decode_context": 4}),
    (
        "0.19",
        V1 + "Initial free memory: 78.67 GiB; Requested memory: 0.95 (util), 75.23 GiB",
        {"free": gib(78.67), "memory_fraction": 0.95, "budget": gib(75.23)},
    ),
    (
        "0.19",
        V1 + "Memory profiling takes 6.12 seconds. Total non KV cache memory: 16.76GiB; torch peak memory increase: "
        "2.87GiB; non-torch forward increase memory: 0.25GiB; weights memory: 13.64GiB.",
        {
            "elapsed": 6.12,
            "non_pool": gib(16.76),
            "activations": gib(2.87),
            "communication": gib(0.25),
            "weights": gib(13.64),
        },
    ),
    (
        "0.32",
        V1 + "Memory profiling takes 6.12 seconds. Total non KV cache memory: 16.76GiB; torch peak memory increase: "
        "2.87GiB; total consumed (from mem_get_info): 13.89GiB; weights memory: 13.64GiB.",
        {
            "elapsed": 6.12,
            "non_pool": gib(16.76),
            "activations": gib(2.87),
            "consumed": gib(13.89),
            "weights": gib(13.64),
        },
    ),
    (
        "0.32",
        V1 + "worker init memory snapshot: torch_peak=0.0GiB, torch_allocated=0.0GiB, free_memory=78.67GiB, "
        "total_memory=79.19GiB, cuda_memory=0.52GiB",
        {"free": gib(78.67), "capacity": gib(79.19)},
    ),
    ("0.18", V1 + "Estimated CUDA graph memory: 1.30 GiB total", {"graphs_estimated": gib(1.3)}),
    ("0.18", V1 + "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=51 (largest=512)", {}),
    ("0.6", OLD + "Graph capturing finished in 12 secs", {"elapsed": 12}),
    ("0.6.6", OLD + "Graph capturing finished in 12 secs, took 0.55 GiB", {"elapsed": 12, "graphs": gib(0.55)}),
    (
        "0.18",
        V1 + "CUDA graph pool memory: 1.84 GiB (actual), 1.30 GiB (estimated), difference: 0.54 GiB (41.5%).",
        {"graphs": gib(1.84), "graphs_estimated": gib(1.3)},
    ),
    (
        "0.18",
        V1
        + "The current --gpu-memory-utilization=0.9500 is equivalent to --gpu-memory-utilization=0.9336 without CUDA "
        "graph memory profiling.",
        {"memory_fraction": 0.95},
    ),
    (
        "0.10",
        V1 + "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
        {"page": 544},
    ),
    (
        "0.10",
        V1 + "Padding mamba page size by 1.49% to ensure that mamba page size and attention page size",
        {"padding": 1.49},
    ),
    (
        "0.10",
        V1 + "Add 3 padding layers, may waste at most 6.25% KV cache memory",
        {"padding_layers": 3},
    ),
    ("0.10", V1 + "Hybrid KV cache manager is disabled but the model has several attention kinds", {}),
    (
        "0.15",
        V1 + "Auto-fit max_model_len: reduced from 131072 to 42752 to fit in available GPU memory",
        {"context_length": 42752},
    ),
    (
        "0.15",
        V1 + "Auto-fit max_model_len: full model context length 8192 fits in available GPU memory",
        {"context_length": 8192},
    ),
    (
        "0.26",
        V1 + "Applying persisted startup plan (fingerprint 0123456789abcdef): kv_cache_memory_bytes=9126805504",
        {"pool_bytes": 9126805504},
    ),
    (
        "0.26",
        V1 + "Saved startup plan to /cache/startup_plan_0123.json",
        {"startup_plan": "/cache/startup_plan_0123.json"},
    ),
    (
        "0.10",
        V1
        + "Initial free memory 31.16 GiB, reserved 4.25 GiB memory for KV Cache as specified by kv_cache_memory_bytes "
        "config and skipped memory profiling.",
        {"free": gib(31.16), "pool_bytes": gib(4.25)},
    ),
    (
        "0.8.5",
        V1 + "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items",
        {"encoder_budget": 16384},
    ),
    (
        "0.32 CPU",
        (
            "(Worker pid=1) INFO 11-29 20:43:42 [v1/worker/cpu_worker.py:260] Explicitly set (1.0/18.09) GiB "
            "for KV cache on "
            "node 0."
        ),
        {"pool_bytes": gib(1), "capacity": gib(18.09)},
    ),
    (
        "sleep",
        V1 + "Sleep mode freed 43.82 GiB memory, 4.11 GiB memory is still in use.",
        {"slept": gib(43.82), "residual": gib(4.11)},
    ),
]

LEDGER_OLD = (
    "Free memory on device (78.67/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual "
    "usage is 13.64 GiB for weight, 2.87 GiB for peak activation, 0.25 GiB for non-torch memory, and 1.84 GiB "
    "for CUDAGraph "
    "memory. Replace gpu_memory_utilization config with `--kv-cache-memory=60000000000` to fit into requested "
    "memory, or "
    "`--kv-cache-memory=64000000000` to fully utilize gpu memory. Current kv cache memory in use is 58.47 GiB."
)
LEDGER_NEW = (
    "Free memory on device (78.67/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual "
    "usage is 13.89 GiB for consumed memory (weights + non-torch), 4.17 GiB for peak activation, and 1.84 GiB "
    "for CUDAGraph "
    "memory. Replace gpu_memory_utilization config with `--kv-cache-memory=60000000000` (55.88 GiB) to fit into "
    "requested "
    "memory, or `--kv-cache-memory=64000000000` (59.6 GiB) to fully utilize gpu memory. Current kv cache memory "
    "in use is "
    "57.17 GiB."
)


@pytest.mark.parametrize(("version", "line", "expected"), LINES, ids=[f"{line[0]} {line[1][-40:]}" for line in LINES])
def test_every_template(version: str, line: str, expected: dict[str, float | int | str]) -> None:
    assert stated(line) == expected


def test_arguments_begin_a_start_once() -> None:
    reader = VllmReader("log")
    banner = reader.feed("(APIServer pid=1) INFO 11-29 20:17:02 [x.py:1]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0", 1)
    arguments = reader.feed(
        "(APIServer pid=1) INFO 11-29 20:17:02 [x.py:286] non-default args: {'model': '/m', 'max_model_len': 2048, "
        "'gpu_memory_utilization': 0.95, 'tensor_parallel_size': 2, 'enforce_eager': True}",
        5,
    )
    assert {seen.quantity: seen.value for seen in banner} == {"start": "vllm", "version": "0.32.0"}
    assert {seen.quantity: seen.value for seen in arguments} == {
        "model": "/m",
        "memory_fraction": 0.95,
        "context_length": 2048,
        "tensor_parallel": 2,
        "graphs_off": "True",
    }


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("(Worker_TP3 pid=9) ", 3),
        ("(Worker_PP1_TP3 pid=9) ", 103),
        ("(VllmWorker rank=2 pid=9) ", 2),
        ("(EngineCore pid=9) ", None),
        ("", None),
    ],
)
def test_ranks(prefix: str, rank: int | None) -> None:
    line = f"{prefix}INFO 04-22 01:35:43 [gpu_worker.py:436] Available KV cache memory: 58.47 GiB"
    assert [seen.rank for seen in VllmReader("log").feed(line, 1)] == [rank]


def test_a_memory_line_that_is_not_understood_is_reported() -> None:
    line = V1 + "Quantum cache holds 3.50 GiB"
    assert stated(line) == {"not_understood": line}


def read(text: str) -> tuple[tuple[Observation, ...], list[Phase]]:
    reader = VllmReader("log")
    seen: list[Observation] = []
    phases: list[Phase] = []
    for number, line in enumerate(text.splitlines(), 1):
        seen += reader.feed(line, number)
        if reader.phase not in phases[-1:]:
            phases.append(reader.phase)
    return tuple(seen), phases


def amounts(text: str) -> dict[str, int]:
    (ledger,) = ledgers(read(text)[0])
    return {entry.account: entry.bytes for entry in ledger.entries}


def test_the_ledger_of_older_versions_closes() -> None:
    found = amounts(f"{V1}Model loading took 13.64 GiB memory and 4.1 seconds\n{V1}{LEDGER_OLD}")
    assert found["context"] == gib(79.19) - gib(78.67)
    assert (found["weights"], found["activations"], found["communication"]) == (gib(13.64), gib(2.87), gib(0.25))
    assert (found["graphs"], found["pool"]) == (gib(1.84), gib(58.47))
    assert sum(found.values()) == gib(79.19)


def test_since_0_30_the_peak_holds_the_estimate_for_graphs() -> None:
    text = (
        f"{V1}Model loading took 13.64 GiB memory and 4.1 seconds\n{V1}Estimated CUDA graph memory: 1.30 GiB total\n"
        f"{V1}{LEDGER_NEW}"
    )
    found = amounts(text)
    assert found["activations"] == gib(4.17) - gib(1.3)
    assert found["communication"] == gib(13.89) - gib(13.64)
    assert sum(found.values()) == gib(79.19)


def test_a_real_log_from_start_to_end() -> None:
    seen, phases = read((LOGS / "killed.log").read_text())
    assert phases[:5] == ["init", "weights", "pool", "warm-up", "ready"]
    found = pool(seen)
    assert found is not None
    assert (found.tokens, found.bytes) == (1_048_576, GIB)
    assert [one.value for one in seen if one.quantity == "version"][-1] == "0.32.0"
    assert [one.value for one in seen if one.quantity == "not_understood"] == []


def test_v0_blocks_are_tokens_where_the_block_size_is_known() -> None:
    text = (
        f"INFO 01-01 00:00:00 x.py:1] non-default args: {{'block_size': 16}}\n{OLD}# GPU blocks: 229, # CPU blocks: 512"
    )
    found = pool(read(text)[0])
    assert found is not None
    assert (found.tokens, found.blocks, found.page) == (3664, 229, 16)


BANNERS = (
    ("INFO 03-01 10:00:00 api_server.py:712] vLLM API server version 0.6.6",
     "INFO 03-01 10:00:00 api_server.py:713] args: Namespace(model='m', gpu_memory_utilization=0.8, swap_space=4)"),
    ("INFO 07-02 10:00:00 [api_server.py:1289] vLLM API server version 0.9.2",
     "INFO 07-02 10:00:00 [cli_args.py:309] non-default args: {'model': 'm', 'gpu_memory_utilization': 0.8}"),
    ("(APIServer pid=1) INFO 11-29 20:17:02 [x.py:1]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
     "(APIServer pid=1) INFO 11-29 20:17:02 [x.py:1] non-default args: {'model': 'm', 'gpu_memory_utilization': 0.8}"),
)  # fmt: skip


@pytest.mark.parametrize(("banner", "arguments"), BANNERS)
def test_starts_that_fail_at_once_are_still_several(banner: str, arguments: str) -> None:
    reader = VllmReader("server.log")
    lines = 3 * (banner, banner, arguments, "ValueError: no")
    seen = [one for number, line in enumerate(lines, 1) for one in reader.feed(line, number)]
    assert [one.source.line for one in seen if one.quantity == "start"] == [1, 5, 9]
    assert [one.value for one in seen if one.quantity == "memory_fraction"] == [0.8, 0.8, 0.8]
