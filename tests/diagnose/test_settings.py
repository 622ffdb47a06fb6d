"""What is set already is not proposed, wherever it is known from."""

import pytest

from draftmark.configuration import Configuration
from draftmark.diagnose.settings import Settings
from tests.diagnose.logs import AFTER_POOL, OUT_OF_MEMORY, SCENARIO, VLLM, changes, codes, moves, of

EXPANDABLE = "expandable_segments:True"
GRAPH_FAILED = "[2026-05-30 14:07:00 TP0] Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.00 GiB.\n"


def sglang(arguments: str, rest: str = AFTER_POOL) -> str:
    """The scenario with further arguments in the engine's own list."""
    return rest.replace("page_size=64", f"page_size=64, {arguments}")


@pytest.mark.parametrize(
    "line",
    [
        f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}",
        f"export PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}",
        f"+ docker run -e PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} --gpus all image",
        f"environ({{'HOME': '/root', 'PYTORCH_CUDA_ALLOC_CONF': '{EXPANDABLE}', 'PATH': '/bin'}})",
        f'  PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:512,{EXPANDABLE}"',
        f"PYTORCH_ALLOC_CONF={EXPANDABLE}",
        f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} python -m sglang.launch_server --model-path m",
    ],
)
def test_expandable_segments_in_the_text_of_the_log(line: str) -> None:
    found = of(f"{line}\n{SCENARIO}")
    assert "fragmented" not in codes(found)
    assert "PYTORCH_CUDA_ALLOC_CONF" not in moves(found.findings[0])
    assert "--chunked-prefill-size" in moves(found.findings[0])


@pytest.mark.parametrize(
    "line",
    [
        f"If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} to avoid it.",
        f"Consider PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512",
    ],
)
def test_advice_to_set_it_is_not_setting_it(line: str) -> None:
    assert moves(of(f"{line}\n{SCENARIO}").findings[0])["PYTORCH_CUDA_ALLOC_CONF"] == ("set", EXPANDABLE)


def test_what_draftmark_started_it_with_counts() -> None:
    started = Configuration(engine="sglang", model="m", environment=(("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE),))
    assert list(moves(of(SCENARIO, started).findings[0])) == ["--chunked-prefill-size", "--mem-fraction-static"]


def test_a_configuration_with_a_flag_that_no_adapter_knows_is_read_as_far_as_it_goes() -> None:
    asked = Configuration(engine="embedded", model="m", flags=("--no-such", "1", "--chunk", "512"))
    log = '  File "x.py", line 1, in _prefill\n' + OUT_OF_MEMORY
    assert moves(of(log, asked).findings[0])["--chunk"] == ("lower", "256")


@pytest.mark.parametrize(
    "arguments",
    [
        "cuda_graph_max_bs=1",
        "cuda_graph_max_bs_decode=1",
        "disable_cuda_graph=True",
        "cuda_graph_backend_decode='disabled'",
    ],
)
def test_fewer_graphs_are_not_proposed_where_there_is_one_or_none(arguments: str) -> None:
    finding = of(sglang(arguments) + GRAPH_FAILED).findings[0]
    assert finding.code == "graph-oom"
    assert list(moves(finding)) == ["--mem-fraction-static"]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("cuda_graph_max_bs=512", "256"),
        ("cuda_graph_max_bs_decode=2", "1"),
        ("cuda_graph_max_bs=None", None),
        ("disable_decode_cuda_graph=False", None),
    ],
)
def test_fewer_graphs_are_half_as_many(arguments: str, value: str | None) -> None:
    flag, found = next(iter(moves(of(sglang(arguments) + GRAPH_FAILED).findings[0]).items()))
    assert flag == ("--cuda-graph-max-bs-decode" if "decode" in arguments else "--cuda-graph-max-bs")
    assert found == ("lower", value)


VLLM_GRAPHS = (
    "INFO 07-02 10:05:00 [gpu_model_runner.py:2000] Capturing CUDA graph shapes\n"
    '  File "/v/worker/gpu_model_runner.py", line 2001, in capture_model\n' + OUT_OF_MEMORY
)
ENGINE = "INFO 07-02 10:00:09 [core.py:69] Initializing a V1 LLM engine (v0.9.2) with config: model='m', {}, seed=0\n"


@pytest.mark.parametrize(
    "line",
    [
        VLLM.replace("'model': 'm'", "'model': 'm', 'enforce_eager': True"),
        ENGINE.format("enforce_eager=True"),
        ENGINE.format("compilation_config={'level': 0, 'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"),
        ENGINE.format("compilation_config={'max_cudagraph_capture_size': 1}"),
        "+ vllm serve m --enforce-eager --port 8000 > server.log\n",
        "command: python -m vllm.entrypoints.openai.api_server --model m --enforce-eager\n",
    ],
)
def test_an_eager_vllm_captures_no_fewer_graphs(line: str) -> None:
    log = VLLM + line + VLLM_GRAPHS
    finding = of(log.replace("0.9.2", "0.32.0")).findings[0]
    assert finding.code == "graph-oom"
    assert "--max-cudagraph-capture-size" not in moves(finding)
    captures = (VLLM + VLLM_GRAPHS).replace("0.9.2", "0.32.0")
    assert "--max-cudagraph-capture-size" in moves(of(captures).findings[0])


TIMED_OUT = "[rank1]:[E1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL\n"


def test_where_nothing_is_left_the_finding_says_so() -> None:
    (finding,) = of(VLLM + TIMED_OUT).findings
    assert list(moves(finding)) == ["TORCH_NCCL_TRACE_BUFFER_SIZE"]
    (finding,) = of("TORCH_NCCL_TRACE_BUFFER_SIZE=2000\n" + VLLM + TIMED_OUT).findings
    assert finding.remedies == ()
    assert finding.claim.endswith("is set already or cannot go further: TORCH_NCCL_TRACE_BUFFER_SIZE")


def test_one_request_at_once_is_not_made_fewer() -> None:
    warm_up = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1 dummy requests.\n"
    (finding,) = of(VLLM.replace("'gpu_memory_utilization': 0.95", "'max_num_seqs': 1") + warm_up).findings
    assert list(moves(finding)) == ["--gpu-memory-utilization"]


@pytest.mark.parametrize("off", ["-1", "0"])
def test_chunking_that_is_off_is_switched_on_and_not_made_smaller(off: str) -> None:
    finding = of(SCENARIO.replace("chunked_prefill_size=8192", f"chunked_prefill_size={off}")).findings[0]
    assert moves(finding)["--chunked-prefill-size"] == ("set", "4096")
    (remedy,) = [one for one in finding.remedies if one.changes[0].flag == "--chunked-prefill-size"]
    assert "now whole prompts are one step each" in remedy.arithmetic


def test_chunking_that_is_off_in_vllm_has_a_switch() -> None:
    off = VLLM.replace("'model': 'm'", "'model': 'm', 'enable_chunked_prefill': False")
    log = off + '  File "/v/gpu_worker.py", line 1, in determine_available_memory\n' + OUT_OF_MEMORY
    finding = of(log).findings[0]
    assert finding.code == "profile-oom"
    assert moves(finding)["--enable-chunked-prefill"] == ("set", None)


@pytest.mark.parametrize(
    ("listed", "value"),
    [("'tensor_parallel_size': 4", "8"), ("'gpu_memory_utilization': 0.9", None), ("'tensor_parallel_size': 1", "2")],
)
def test_more_gpus_are_twice_as_many_as_are_known(listed: str, value: str | None) -> None:
    load = '  File "/v/loader.py", line 1, in load_model\n' + OUT_OF_MEMORY
    finding = of(VLLM.replace("'gpu_memory_utilization': 0.95", listed) + load).findings[0]
    assert finding.code == "load-oom"
    assert moves(finding)["--tensor-parallel-size"] == ("raise", value)


def test_a_context_that_is_short_already_is_not_shortened_to_more() -> None:
    line = (
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in "
        "KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`\n"
    )
    assert moves(of(VLLM + line).findings[0])["--max-model-len"] == ("lower", "3664")
    short = VLLM.replace("'model': 'm'", "'model': 'm', 'max_model_len': 2048")
    assert "--max-model-len" not in moves(of(short + line).findings[0])


def test_custom_all_reduce_that_is_off_is_no_objection() -> None:
    assert "--disable-custom-all-reduce" in of(SCENARIO).findings[0].remedies[0].cost
    off = sglang("disable_custom_all_reduce=True", SCENARIO)
    assert "--disable-custom-all-reduce" not in of(off).findings[0].remedies[0].cost


def test_a_kv_connector_of_vllm_stands_no_expandable_segments() -> None:
    message = SCENARIO[SCENARIO.index("torch.OutOf") : SCENARIO.index("[2026-05-30 14:09:04]")]
    connected = VLLM.replace("'model': 'm'", "'model': 'm', 'kv_transfer_config': {'kv_connector': 'NixlConnector'}")
    assert "fragmented" in codes(of(VLLM + "Application startup complete.\n" + message))
    assert "fragmented" not in codes(of(connected + "Application startup complete.\n" + message))


def test_settings_belong_to_the_start_that_follows_trouble() -> None:
    between = f"+ PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} python -m sglang.launch_server --cuda-graph-max-bs 1\n"
    first, second = of(SCENARIO + between + AFTER_POOL), of(SCENARIO + between + SCENARIO)
    assert "PYTORCH_CUDA_ALLOC_CONF" in moves(first.findings[0])
    assert "PYTORCH_CUDA_ALLOC_CONF" not in moves(second.findings[0])


def test_a_variable_holds_over_restarts_and_flags_do_not() -> None:
    head = f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}\n"
    found = of(head + sglang("disable_custom_all_reduce=True", SCENARIO) + SCENARIO)
    assert "PYTORCH_CUDA_ALLOC_CONF" not in moves(found.findings[0])


def test_a_command_is_read_as_a_shell_reads_it() -> None:
    settings = Settings()
    settings.read("$ vllm serve org/m --hf-overrides '{\"a b\": 1}' --max-num-seqs=4 --quantization 2>&1 | tee log \\")
    assert settings.flags["--hf-overrides"] == ('{"a b": 1}',)
    assert settings.number("--max-num-seqs") == 4
    assert settings.on("--quantization")
    assert "2" not in settings.flags["--quantization"]
    settings.read("vllm serve m --chat-template 'not closed")
    assert settings.on("--chat-template")


@pytest.mark.parametrize("chunk", ["8192", "1024", "511", "256"])
@pytest.mark.parametrize("fraction", ["0.94", "0.5", "0.999"])
def test_no_flag_is_proposed_at_the_value_that_it_has(fraction: str, chunk: str) -> None:
    log = SCENARIO.replace("0.94", fraction).replace("chunked_prefill_size=8192", f"chunked_prefill_size={chunk}")
    proposed = [change.value for finding in of(log).findings for change in changes(finding)]
    assert proposed
    assert not {fraction, chunk} & set(proposed)


POOL_OOM = '  File "/x.py", line 1, in initialize_kv_cache\n' + OUT_OF_MEMORY.replace(
    "2.00 GiB.", "2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free."
)


@pytest.mark.parametrize("failing", [POOL_OOM, "Application startup complete.\n" + POOL_OOM])
def test_a_pool_of_explicit_size_is_lowered_itself(failing: str) -> None:
    given = VLLM.replace("'model': 'm'", "'model': 'm', 'kv_cache_memory_bytes': 40000000000")
    proposed = moves(of(given + failing).findings[0])
    assert proposed["--kv-cache-memory-bytes"] == ("lower", str(40000000000 - 2**30 - 64 * 2**20))
    assert "--gpu-memory-utilization" not in proposed
    assert "--kv-cache-memory-bytes" not in moves(of(VLLM + failing).findings[0])


@pytest.mark.parametrize(
    ("asked", "flag", "value"),
    [
        ("200000", "--max-total-tokens", "199000"),  # 67 MiB at 70,276 B a token
        ("900000", "--mem-fraction-static", "0.939"),
        ("None", "--mem-fraction-static", "0.939"),
    ],
)
def test_a_pool_that_the_fraction_made_smaller_is_the_fractions(asked: str, flag: str, value: str) -> None:
    proposed = moves(of(SCENARIO.replace("max_total_tokens=None", f"max_total_tokens={asked}")).findings[0])
    assert proposed[flag] == ("lower", value)
    assert len({"--max-total-tokens", "--mem-fraction-static"} & proposed.keys()) == 1


def test_a_pool_of_explicit_size_that_is_too_small_is_raised_itself() -> None:
    line = (
        "ValueError: To serve at least one request with the model's max seq len (8192), (2.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (1.00 GiB).\n"
    )
    given = VLLM.replace("'model': 'm'", "'model': 'm', 'kv_cache_memory_bytes': 1073741824")
    proposed = moves(of(given + line).findings[0])
    assert proposed["--kv-cache-memory-bytes"] == ("raise", None)
    assert "--gpu-memory-utilization" not in proposed
