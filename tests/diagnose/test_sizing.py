"""Starts that cannot work before any memory is divided: contexts beyond the model, and ranks without GPUs."""

import pytest

from tests.diagnose.logs import SCENARIO, VLLM, codes, moves, of

SGLANG = SCENARIO[: SCENARIO.index("[2026-05-30 14:00:10 TP3]")]
BEYOND = (  # vLLM 0.6.6 to 0.32.0, and two forms of the model's own length; SGLang 0.4.6 to 0.5.23
    (VLLM, ("ValueError: User-specified max_model_len ({context}) is greater than the derived max_model_len "
     "(max_position_embeddings={derived} or model_max_length=None in model's config.json). "), "--max-model-len"),
    (VLLM, ("  Value error, User-specified max_model_len ({context}) is greater than the derived max_model_len "
     "(max_position_embeddings={derived}.0 or model_max_length=None in model's config.json). "), "--max-model-len"),
    (SGLANG, ("ValueError: Warning: User-specified context_length ({context}) is greater than the derived "
     "context_length ({derived}). This may lead to incorrect model outputs or CUDA errors. "), "--context-length"),
    (SGLANG, ("ValueError: Warning: Target model's context_length ({context}) is greater than the derived "
     "context_length ({derived}). This may lead to incorrect model outputs or CUDA errors. "), "--context-length"),
)  # fmt: skip
REFUSED = "To allow overriding this maximum, set the env var X=1\n"


@pytest.mark.parametrize(("before", "line", "flag"), BEYOND)
def test_a_context_beyond_the_model(before: str, line: str, flag: str) -> None:
    said = line.format(context=262144, derived=131072)
    first = of(before + said + REFUSED).findings[0]
    assert (first.code, first.confidence) == ("context-beyond-model", "certain")
    assert first.claim == "requests of 262,144 tokens are promised, and by its config the model takes 131,072"
    assert moves(first)[flag] == ("lower", "131072")
    assert "context-beyond-model" not in codes(of(f"{before}WARNING {said}\n")), "the user asked for it"


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Tensor parallel size (8) cannot be larger than the number of available GPUs (4).",
        "ValueError: World size (8) is larger than the number of available GPUs (4) in this node.",
    ],
)
def test_more_ranks_than_gpus(line: str) -> None:
    (finding,) = of(VLLM.replace("'model': 'm'", "'model': 'm', 'tensor_parallel_size': 8") + line + "\n").findings
    assert (finding.code, finding.claim) == ("too-few-gpus", "8 ranks were asked for and 4 GPUs are to be seen")
    assert moves(finding) == {"--tensor-parallel-size": ("lower", "4"), "GPUs": ("raise", None)}


@pytest.mark.parametrize("line", ["RuntimeError: Found no NVIDIA driver on your system. Please check that you have one",
                                  "RuntimeError: No CUDA GPUs are available"])  # fmt: skip
def test_no_gpu_at_all(line: str) -> None:
    (finding,) = of(f"{SGLANG}{line}\n").findings
    assert (finding.code, finding.claim) == ("too-few-gpus", "the engine's process sees no GPU")


def test_the_fraction_for_one_longest_request_by_its_tokens() -> None:
    log = (
        "INFO 01-05 10:00:00 api_server.py:712] vLLM API server version 0.6.6\n"
        "INFO 01-05 10:00:55 worker.py:241] the current vLLM instance can use total_gpu_memory (22.00GiB) x "
        "gpu_memory_utilization (0.90) = 19.80GiB\n"
        "INFO 01-05 10:00:55 worker.py:241] model weights take 14.25GiB; non_torch_memory takes 0.10GiB; PyTorch "
        "activation peak memory takes 4.34GiB; the rest of the memory reserved for KV Cache is 1.10GiB.\n"
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in "
        "KV cache (16384). Try increasing `gpu_memory_utilization`\n"
    )
    (finding,) = of(log).findings
    assert finding.code == "pool-below-context"
    assert moves(finding)["--gpu-memory-utilization"] == ("raise", "above 0.950"), "1.10 of 22 GiB more"


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ("Initial free memory 32212254720, current free memory 42949672960", "30.00 GiB free before, 40.00 GiB after"),
        ("Initial free memory 30.00 GiB, current free memory 40.00 GiB", "30.00 GiB free before, 40.00 GiB after"),
    ],
)
def test_memory_that_another_process_gave_back_in_between(numbers: str, shown: str) -> None:
    (finding,) = of(f"{VLLM}AssertionError: Error in memory profiling. {numbers}. This happens when\n").findings
    assert (finding.code, finding.claim.endswith(shown)) == ("memory-taken", True)


def test_a_context_that_cannot_be_fitted_at_all() -> None:
    said = (
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try increasing "
        "`gpu_memory_utilization`.\n"
    )
    (finding,) = of(f"{VLLM}ValueError: {said}").findings
    assert finding.code == "no-room-for-pool"
    assert moves(finding)["--gpu-memory-utilization"][0] == "raise"


@pytest.mark.parametrize(
    ("version", "said", "flag"),
    [
        ("0.6.6.post1", "", "--enable-chunked-prefill"),
        ("0.6.6.post1", "Chunked prefill is enabled with max_num_batched_tokens=512.", "--max-num-batched-tokens"),
        ("0.8.5", "", "--max-num-batched-tokens"),
        ("0.1.dev1+g1234567", "", "--max-num-batched-tokens"),
        ("0.32.0", "", "--max-num-batched-tokens"),
    ],
)
def test_a_chunk_is_made_smaller_only_where_prompts_are_cut(version: str, said: str, flag: str) -> None:
    log = (
        f"{VLLM.replace('0.9.2', version)}INFO 01-05 10:00:01 config.py:1] {said}\n"
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in "
        "KV cache (16384). Try increasing `gpu_memory_utilization`\n"
    )
    (finding,) = of(log).findings
    chunked = {"--enable-chunked-prefill", "--max-num-batched-tokens"}
    assert chunked & moves(finding).keys() == {flag}
