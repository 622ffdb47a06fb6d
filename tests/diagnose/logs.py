"""Pieces of logs that tests put together, and what diagnose makes of them."""

import io

from draftmark.configuration import Configuration
from draftmark.diagnose import Diagnosis, diagnose
from draftmark.finding import Change, Finding

SCENARIO = """\
[2026-05-30 14:00:00] server_args=ServerArgs(model_path='/models/Kimi-K2.6', mem_fraction_static=0.94, \
max_total_tokens=None, chunked_prefill_size=8192, page_size=64, tp_size=8, speculative_algorithm='EAGLE')
[2026-05-30 14:00:10 TP3] Init torch distributed ends. elapsed=9.10 s, mem usage=1.90 GB
[2026-05-30 14:00:10 TP3] Load weight begin. avail mem=92.60 GB
[2026-05-30 14:06:40 TP3] Load weight end. elapsed=390.00 s, type=DeepseekV3ForCausalLM, avail mem=18.40 GB, \
mem usage=74.20 GB.
[2026-05-30 14:06:43 TP3] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, KV size: 13.09 GB
[2026-05-30 14:06:43 TP3] Memory pool end. avail mem=5.20 GB
[2026-05-30 14:07:20 TP3] Capture target verify CUDA graph end. elapsed=36.00 s, mem usage=1.10 GB, avail mem=4.10 GB.
[2026-05-30 14:07:21 TP3] max_total_num_tokens=200000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=48, context_len=262144, available_gpu_mem=4.10 GB
[2026-05-30 14:07:30] The server is fired up and ready to roll!
[2026-05-30 14:09:00 TP3] Prefill batch. #new-seq: 1, #new-token: 8192, #cached-token: 16384, token usage: 0.12
[2026-05-30 14:09:03 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/sglang/srt/managers/scheduler.py", line 3259, in run_batch
  File "/sglang/srt/model_executor/model_runner.py", line 3010, in forward_extend
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 3 has a total capacity of 94.97 GiB of \
which 893.00 MiB is free. Including non-PyTorch memory, this process has 94.09 GiB memory in use. Of the allocated \
memory 91.20 GiB is allocated by PyTorch, with 626.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.40 GiB \
is reserved by PyTorch but unallocated.
[2026-05-30 14:09:04] Received sigquit from a child process. It usually means the child failed.
"""
"""The crash that started it: a prompt of 32k on eight GPUs."""
VLLM = """\
INFO 07-02 10:00:00 [api_server.py:1289] vLLM API server version 0.9.2
INFO 07-02 10:00:00 [cli_args.py:309] non-default args: {'model': 'm', 'gpu_memory_utilization': 0.95}
"""
ENGINE_FAILED = """\
ERROR 07-02 10:10:00 [core.py:588] EngineCore failed to start.
ERROR 07-02 10:10:00 [core.py:588] Traceback (most recent call last):
ERROR 07-02 10:10:00 [core.py:588]   File "/v/core.py", line 579, in run_engine_core
ERROR 07-02 10:10:00 [core.py:588] {cause}
"""
SEE_ABOVE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
SERVING = SCENARIO[: SCENARIO.index("[2026-05-30 14:09:03")]
GOES_ON = """\
[2026-05-30 14:09:05] INFO:     127.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 200 OK
[2026-05-30 14:09:06 TP3] Decode batch, #running-req: 1, #token: 120, token usage: 0.00
"""
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
AFTER_WEIGHTS = SCENARIO[: SCENARIO.index("[2026-05-30 14:06:43")]
AFTER_POOL = SCENARIO[: SCENARIO.index("[2026-05-30 14:07:20")]
IN_DECODE = SERVING + "[2026-05-30 14:09:02 TP3] Decode batch, #running-req: 1, #token: 120, token usage: 0.00\n"


def of(text: str | bytes, configuration: Configuration | None = None) -> Diagnosis:
    stream = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    return diagnose(stream, "server.log", configuration)


def codes(found: Diagnosis) -> list[str]:
    return [finding.code for finding in found.findings]


def lines_of(finding: Finding) -> list[int | None]:
    return [seen.source.line for seen in finding.evidence]


def changes(finding: Finding) -> list[Change]:
    return [change for remedy in finding.remedies for change in remedy.changes]


def moves(finding: Finding) -> dict[str, tuple[str, str | None]]:
    """Where each flag is to go: direction and value."""
    return {change.flag: (change.direction, change.value) for change in changes(finding)}
