"""Allocations that failed: what the engine was doing, how sure that is, and what is proposed."""

import pytest

from tests.diagnose.logs import (
    AFTER_POOL,
    AFTER_WEIGHTS,
    CUBLAS,
    IN_DECODE,
    OUT_OF_MEMORY,
    SCENARIO,
    SERVING,
    VLLM,
    codes,
    lines_of,
    moves,
    of,
)


def test_the_scenario_gets_its_remedies_by_what_they_cost() -> None:
    found = of(SCENARIO)
    assert (found.engine, found.starts, found.phase) == ("sglang", 1, "prefill")
    first = found.findings[0]
    assert (first.code, first.severity, first.confidence) == ("prefill-oom", "fatal", "certain")
    assert first.claim == (
        "out of memory at the activation peak of a prefill step: tried 896 MiB, 893 MiB free, missed by 3 MiB, with "
        "1.40 GiB stranded by fragmentation, 626 MiB in private pools of graphs"
    )
    assert lines_of(first)[0] == 14
    expandable, chunk, fraction = first.remedies
    assert expandable.changes[0].value == "expandable_segments:True"
    assert "custom all-reduce" in expandable.cost
    assert (chunk.changes[0].flag, chunk.changes[0].direction, chunk.changes[0].value) == (
        "--chunked-prefill-size",
        "lower",
        "4096",
    )
    assert chunk.cost.startswith("no pool")
    assert (fraction.changes[0].direction, fraction.changes[0].value) == ("lower", "0.939")
    assert "about 1,451 tokens" in fraction.cost
    assert "fragmented" in codes(found)


@pytest.mark.parametrize(
    ("tried", "value"),
    [("896.00 MiB", "0.939"), ("14.00 GiB", "0.801"), ("16.60 GiB", None), ("90.00 GiB", None), ("200.00 GiB", None)],
)
def test_a_fraction_that_does_not_hold_the_weights_cannot_help(tried: str, value: str | None) -> None:
    first = of(SCENARIO.replace("Tried to allocate 896.00 MiB", f"Tried to allocate {tried}")).findings[0]
    remedy = first.remedies[-1]
    (change,) = remedy.changes
    assert change.flag == "--mem-fraction-static"
    assert change.value == value
    assert change.direction == ("lower" if value else "cannot help")
    assert value is not None or "does not hold the weights (74.20 GiB)" in remedy.arithmetic


@pytest.mark.parametrize("fraction", ["0.001", "1.5", "0"])
def test_no_fraction_is_printed_that_no_engine_takes(fraction: str) -> None:
    for finding in of(SCENARIO.replace("mem_fraction_static=0.94", f"mem_fraction_static={fraction}")).findings:
        changes = [change for remedy in finding.remedies for change in remedy.changes]
        assert [change.value for change in changes if change.flag == "--mem-fraction-static"] in ([], [None])


@pytest.mark.parametrize(
    ("log", "code", "confidence"),
    [
        (AFTER_WEIGHTS + OUT_OF_MEMORY, "pool-oom", "likely"),
        (AFTER_WEIGHTS + '  File "x.py", line 1, in init_memory_pool\n' + OUT_OF_MEMORY, "pool-oom", "certain"),
        (AFTER_WEIGHTS + "ValueError: failed to allocate buffer for kv cache\n" + OUT_OF_MEMORY, "pool-oom", "certain"),
        (AFTER_POOL + OUT_OF_MEMORY, "pool-oom", "likely"),
        (AFTER_POOL + '  File "lora_manager.py", line 1, in init_memory_pool\n' + OUT_OF_MEMORY, "lora-oom", "certain"),
        (IN_DECODE + '  File "lora/layers.py", line 1, in forward\n' + OUT_OF_MEMORY, "decode-oom", "certain"),
        (IN_DECODE + CUBLAS, "decode-oom", "likely"),
        (IN_DECODE + '  File "x.py", line 1, in forward_decode\n' + CUBLAS, "decode-oom", "certain"),
        (IN_DECODE + OUT_OF_MEMORY, "decode-oom", "certain"),
    ],
)
def test_the_last_marker_alone_makes_it_likely(log: str, code: str, confidence: str) -> None:
    first = of(log).findings[0]
    assert (first.code, first.confidence) == (code, confidence)
    assert first.claim.startswith("out of memory most likely") is (confidence == "likely")


VIT = '  File "/v/gpu_model_runner.py", line 1912, in _execute_mm_encoder\n  File "/v/qwen.py", line 9, in {}\n'


@pytest.mark.parametrize(
    "function", ["embed_multimodal", "get_multimodal_embeddings", "_process_image_input", "forward"]
)
@pytest.mark.parametrize(
    ("before", "fraction"),
    [
        (VLLM + "Application startup complete.\n", True),
        (VLLM + '  File "/v/gpu_model_runner.py", line 6133, in profile_run\n', False),
    ],
)
def test_an_encoder_of_vllm_takes_fewer_images(before: str, fraction: bool, function: str) -> None:
    first = of(before + VIT.format(function) + OUT_OF_MEMORY).findings[0]
    assert (first.code, first.confidence) == ("encoder-oom", "certain")
    assert moves(first)["--limit-mm-per-prompt"] == ("lower", None)
    assert ("--gpu-memory-utilization" in moves(first)) is fraction


@pytest.mark.parametrize("function", ["get_image_feature", "get_video_feature", "_get_chunked_prefill_embedding"])
def test_an_encoder_of_sglang_takes_fewer_images(function: str) -> None:
    first = of(SERVING + f'  File "/sglang/x.py", line 9, in {function}\n' + OUT_OF_MEMORY).findings[0]
    assert first.code == "encoder-oom"
    assert list(moves(first)) == ["--limit-mm-data-per-request", "--mm-process-config", "--mem-fraction-static"]
    language = '  File "/sglang/mm_utils.py", line 845, in general_mm_embed_routine\n'
    assert codes(of(SERVING + language + OUT_OF_MEMORY))[0] == "prefill-oom", "it wraps the language model too"


@pytest.mark.parametrize(
    ("log", "flag", "fraction"),
    [
        (
            AFTER_POOL + '  File "/sglang/srt/lora/mem_pool.py", line 9, in init_buffers\n',
            "--max-loras-per-batch",
            True,
        ),
        (VLLM + '  File "/v/lora/layers/base_linear.py", line 9, in create_lora_weights\n', "--max-loras", False),
    ],
)
def test_a_pool_of_adapters_is_a_class_of_its_own(log: str, flag: str, fraction: bool) -> None:
    first = of(log + OUT_OF_MEMORY).findings[0]
    assert first.code == "lora-oom"
    assert list(moves(first))[:2] == [flag, "--max-lora-rank"]
    assert (len(moves(first)) == 3) is fraction


OTHERS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 640.00 MiB is free. {}Of the allocated memory 70.00 GiB is allocated by PyTorch, and 90.00 MiB is "
    "reserved by PyTorch but unallocated.\n"
)
OWN = "Including non-PyTorch memory, this process has 74.00 GiB memory in use. "


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ("Process 12345 has 3.20 GiB memory in use. " + OWN, "3.20 GiB held by other processes (12345)"),
        ("Process 1 has 1.00 GiB memory in use. Process 2 has 512.00 MiB memory in use. " + OWN,
         "1.50 GiB held by other processes (1, 2)"),
        ("Process 7 has 74.50 GiB memory in use. Process 8 has 3.00 GiB memory in use. ",
         "3.00 GiB held by other processes (8)"),
        ("Process 7 has 74.50 GiB memory in use. ", None),
        (OWN, None),
    ],
)  # fmt: skip
def test_memory_that_others_hold_is_named(processes: str, said: str | None) -> None:
    first = of(SERVING + OTHERS.format(processes)).findings[0]
    assert ("held by other processes" in first.claim) is (said is not None)
    assert (said or "") in first.claim
    assert (next(iter(moves(first))) == "other processes on the GPU") is (said is not None)


def test_others_that_hold_less_than_was_missing_are_named_and_not_sent_away() -> None:
    first = of(SERVING + OTHERS.format("Process 9 has 128.00 MiB memory in use. " + OWN)).findings[0]
    assert "128 MiB held by other processes (9)" in first.claim
    assert "other processes on the GPU" not in moves(first)


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried", "CUDA out of memory; Tried",
                                   "CUDA out of memory: tried",
                                   "HIP out of memory. Tried", "CUDA out of memory Tried"])  # fmt: skip
def test_punctuation_does_not_matter(words: str) -> None:
    first = of(SERVING + f"RuntimeError: {words} to allocate 2.00 GiB.\n").findings[0]
    assert (first.code, first.claim.endswith("tried 2.00 GiB")) == ("prefill-oom", True)


PREEMPTED = (
    "WARNING 07-02 10:20:00 [scheduler.py:1754] Sequence group cmpl-1 is preempted by PreemptionMode.{} mode because "
    "there is not enough KV cache space. This can affect the end-to-end performance. Increase gpu_memory_utilization "
    "or tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption=51\n"
)
STATISTICS = (
    "INFO 07-02 10:20:00 [loggers.py:259] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
    "1.0 tokens/s, Running: 12 reqs, Waiting: 4 reqs, Preemptions: {}, GPU KV cache usage: 99.1%\n"
)


@pytest.mark.parametrize("line", [PREEMPTED.format("RECOMPUTE"), PREEMPTED.format("SWAP"), STATISTICS.format(3)])
def test_a_preemption_is_a_full_pool_and_no_death(line: str) -> None:
    (finding,) = of(VLLM + "Application startup complete.\n" + line).findings
    assert (finding.code, finding.severity) == ("pool-exhausted", "warning")
    assert of(VLLM + "Application startup complete.\n" + STATISTICS.replace("Preemptions: {}, ", "")).findings == ()


DUMP = (
    "(EngineCore pid=2) ERROR 07-02 10:10:01 [dump_input.py:79] Dumping scheduler output for model execution: "
    "SchedulerOutput(scheduled_new_reqs=[], num_scheduled_tokens={{{}}}, total_num_scheduled_tokens={}, "
    "scheduled_spec_decode_tokens={{}})\n"
)
RUNNING = (
    "INFO 07-02 10:09:00 [loggers.py:236] Engine 0: generation throughput: 1.0, Running: 3 reqs, Waiting: 0 reqs\n"
)
DRAFTS = "'model': 'm', 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}"


@pytest.mark.parametrize(
    ("dump", "model", "code", "confidence"),
    [
        ("", "'model': 'm'", "prefill-oom", "likely"),
        (DUMP.format("cmpl-1: 1, cmpl-2: 1", 2), "'model': 'm'", "decode-oom", "certain"),
        (DUMP.format("cmpl-1: 1, cmpl-2: 8191", 8192), "'model': 'm'", "prefill-oom", "certain"),
        (DUMP.format("cmpl-1: 4, cmpl-2: 4", 8), DRAFTS, "decode-oom", "certain"),
        (DUMP.format("cmpl-1: 4, cmpl-2: 5", 9), DRAFTS, "prefill-oom", "certain"),
        (DUMP.format("", 0), "'model': 'm'", "prefill-oom", "likely"),
    ],
)
def test_a_step_of_vllm_is_known_by_what_it_dumps_of_it(dump: str, model: str, code: str, confidence: str) -> None:
    serving = VLLM.replace("'model': 'm'", model) + "Application startup complete.\n" + RUNNING
    first = of(serving + OUT_OF_MEMORY + dump).findings[0]
    assert (first.code, first.confidence) == (code, confidence)
    assert ("--max-num-batched-tokens" in moves(first)) is (code == "prefill-oom")


DECODES = "[2026-05-30 14:09:02 TP3] Decode batch, #running-req: {ran}, #token: 120, token usage: 0.90\n"
RETRACTS = (
    "[2026-05-30 14:09:03 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 1\n"
)


@pytest.mark.parametrize(
    ("ran", "failed", "value"),
    [
        (20, OUT_OF_MEMORY, "10"),
        (48, OUT_OF_MEMORY, "24"),
        (44, RETRACTS, "41"),
        (44, RETRACTS + DECODES.format(ran=12), "41"),
    ],
)
def test_fewer_requests_than_ran_and_not_than_may_run(ran: int, failed: str, value: str) -> None:
    found = of(SERVING + DECODES.format(ran=ran) + failed).findings[0]
    assert moves(found)["--max-running-requests"] == ("lower", value), "the server may run 48"


def test_a_draft_model_beside_the_pool_wants_a_smaller_pool() -> None:
    frames = (
        '  File "/sglang/srt/speculative/eagle_worker.py", line 120, in __init__\n'
        '  File "/sglang/srt/model_executor/model_runner.py", line 440, in load_model\n'
    )
    before = of(AFTER_WEIGHTS + frames + OUT_OF_MEMORY).findings[0]
    after = of(AFTER_POOL + frames + OUT_OF_MEMORY).findings[0]
    assert (before.code, after.code) == ("load-oom", "load-oom")
    assert "--mem-fraction-static" not in moves(before)
    assert moves(after)["--mem-fraction-static"][0] == "lower"


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"])
def test_the_variable_is_the_one_that_the_allocator_names(name: str) -> None:
    advice = f"reserved by PyTorch but unallocated. If it is large try setting {name}=expandable_segments:True to avoid"
    found = of(SCENARIO.replace("reserved by PyTorch but unallocated.", advice)).findings[0]
    assert next(iter(moves(found).items())) == (name, ("set", "expandable_segments:True"))
