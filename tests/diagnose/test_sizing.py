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
