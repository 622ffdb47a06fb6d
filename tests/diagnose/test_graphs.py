"""Which flag bounds the graphs that are captured: by engine, version, and kind of step."""

import pytest

from tests.diagnose.logs import AFTER_POOL, OUT_OF_MEMORY, VLLM, moves, of

VLLM_GRAPHS = (
    "INFO 07-02 10:05:00 [gpu_model_runner.py:2000] Capturing CUDA graph shapes\n"
    '  File "/v/worker/gpu_model_runner.py", line 2001, in capture_model\n' + OUT_OF_MEMORY
)
SGLANG = AFTER_POOL.replace(
    "page_size=64", "page_size=64, cuda_graph_max_bs_decode=None, disable_decode_cuda_graph=False"
)


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.6.6.post1", "--max-num-seqs"),
        ("0.8.5", "--max-num-seqs"),
        ("0.9.2", "--cuda-graph-sizes"),
        ("0.10.2", "--cuda-graph-sizes"),
        ("0.11.0", "--cuda-graph-sizes"),
        ("0.11.2", "--max-cudagraph-capture-size"),
        ("0.32.0", "--max-cudagraph-capture-size"),
        ("0.40.0", "--max-cudagraph-capture-size"),
        ("0.1.dev1+g1234567", "--max-cudagraph-capture-size"),
    ],
)
def test_the_flag_of_graphs_is_the_one_of_the_version_that_ran(version: str, flag: str) -> None:
    finding = of(VLLM.replace("0.9.2", version) + VLLM_GRAPHS).findings[0]
    assert next(iter(moves(finding))) == flag


CAPTURE = (
    "[2026-05-30 14:06:44 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, "
    "bs=[1, 2, 4, 64], avail mem=2.20 GB\n"
)
CAPTURED = CAPTURE + (
    "[2026-05-30 14:06:50 TP0] Capture target decode CUDA graph end. elapsed=6.0 s, mem usage=1.00 GB, "
    "avail mem=1.20 GB.\n[2026-05-30 14:06:51 TP0] Capture target prefill CUDA graph begin. backend=breakable, "
    "num_tokens=[4, 8, 8192], avail mem=1.20 GB\n"
)
PREFILL_FRAME = '  File "/sglang/srt/model_executor/runner/prefill_cuda_graph_runner.py", line 700, in capture\n'
PREFILL_SAID = "RuntimeError: Capture prefill CUDA graph failed: CUDA out of memory. Tried to allocate 1.00 GiB\n"
DECODE_FRAME = '  File "/sglang/srt/model_executor/runner/decode_cuda_graph_runner.py", line 700, in capture\n'


@pytest.mark.parametrize(
    ("failed", "flag", "value"),
    [
        (CAPTURE + DECODE_FRAME + OUT_OF_MEMORY, "--cuda-graph-max-bs-decode", "32"),
        (CAPTURED + PREFILL_FRAME + OUT_OF_MEMORY, "--cuda-graph-max-bs-prefill", "4096"),
        (CAPTURED + PREFILL_SAID, "--cuda-graph-max-bs-prefill", "4096"),
    ],
)
def test_graphs_of_prefill_steps_have_a_flag_of_their_own(failed: str, flag: str, value: str) -> None:
    finding = of(SGLANG + failed).findings[0]
    assert finding.code == "graph-oom"
    assert next(iter(moves(finding).items())) == (flag, ("lower", value))
