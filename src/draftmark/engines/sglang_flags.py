"""SGLang's launch flags: those that our vocabulary has words for, and those whose effect on memory is known."""

from typing import Any, Final

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Pasted
from draftmark.engines.flags import (
    Flag,
    assign,
    last_value,
    on_gpus,
    pasted,
    read,
    refuse_file,
    write,
)
from draftmark.engines.listed import logged
from draftmark.engines.words import Given, read_words, strays, twice

TABLE: Final = (
    Flag(names=("--model-path", "--model"), field="model", kind="text"),
    Flag(names=("--tp-size", "--tensor-parallel-size", "--tp"), field="parallel.tensor", kind="integer"),
    Flag(names=("--pp-size", "--pipeline-parallel-size", "--pp"), field="parallel.pipeline", kind="integer"),
    Flag(names=("--dp-size", "--data-parallel-size", "--dp"), field="parallel.data", kind="integer"),
    Flag(names=("--ep-size", "--expert-parallel-size", "--ep"), field="parallel.expert", kind="integer"),
    Flag(
        names=("--dcp-size", "--decode-context-parallel-size", "--dcp"),
        field="parallel.decode_context",
        kind="integer",
    ),
    Flag(names=("--enable-dp-attention",), field="parallel.data_attention", kind="on"),
    Flag(names=("--mem-fraction-static", "--mem-frac"), field="memory_fraction", kind="number"),
    Flag(names=("--max-total-tokens",), field="pool_tokens", kind="iec"),
    Flag(names=("--chunked-prefill-size",), field="chunk", kind="iec"),
    Flag(names=("--context-length",), field="context", kind="iec"),
    Flag(names=("--max-running-requests",), field="max_running", kind="integer"),
    Flag(names=("--page-size",), field="page", kind="integer"),
    Flag(names=("--dtype",), field="dtype", kind="text", aliases=(("half", "float16"), ("float", "float32"))),
    Flag(
        names=("--kv-cache-dtype",),
        field="kv_dtype",
        kind="text",
        aliases=(("bf16", "bfloat16"),),
    ),
    Flag(names=("--quantization",), field="quantization", kind="text"),
    Flag(names=("--disable-cuda-graph",), field="graphs", kind="off"),
    Flag(names=("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"), field="graph_batch", kind="integer"),
    Flag(names=("--speculative-algorithm", "--speculative-algo"), field="speculative.algorithm", kind="text"),
    Flag(
        names=("--speculative-draft-model-path", "--speculative-draft-model"),
        field="speculative.draft_model",
        kind="text",
    ),
    Flag(names=("--speculative-num-steps",), field="speculative.steps", kind="integer"),
    Flag(names=("--speculative-eagle-topk",), field="speculative.top_k", kind="integer"),
    Flag(names=("--speculative-num-draft-tokens",), field="speculative.draft_tokens", kind="integer"),
    Flag(names=("--speculative-draft-window-size",), field="speculative.window", kind="integer"),
)

KEPT: Final = (
    "--swa-full-tokens-ratio", "--mamba-full-memory-ratio", "--max-mamba-cache-size", "--disable-radix-cache",
    "--disable-overlap-schedule", "--max-prefill-tokens", "--attention-backend", "--prefill-attention-backend",
    "--decode-attention-backend", "--disable-prefill-cuda-graph", "--disable-decode-cuda-graph", "--load-format",
    "--mamba-ssm-dtype", "--moe-a2a-backend", "--enable-deepep-moe", "--disable-custom-all-reduce", "--nnodes",
    "--disable-piecewise-cuda-graph", "--mamba-scheduler-strategy",
    "--mamba-radix-cache-strategy", "--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend",
    "--nsa-decode-backend", "--moe-runner-backend", "--language-only", "--cuda-graph-backend-decode",
    "--cuda-graph-backend-prefill",
)  # fmt: skip
"""Flags whose effect on memory the planner knows, kept verbatim in `flags`."""

HARMLESS: Final = (
    "--host", "--port", "--api-key", "--admin-api-key", "--served-model-name", "--trust-remote-code",
    "--tokenizer-path", "--tokenizer-mode", "--tokenizer-worker-num", "--skip-tokenizer-init", "--chat-template",
    "--reasoning-parser", "--tool-call-parser", "--log-level", "--log-level-http", "--log-requests",
    "--log-requests-level", "--enable-metrics", "--watchdog-timeout", "--random-seed", "--schedule-policy",
    "--schedule-conservativeness", "--dist-init-addr", "--nccl-init-addr", "--node-rank", "--nccl-port",
    "--dist-timeout", "--grammar-backend", "--sampling-backend", "--stream-interval", "--decode-log-interval",
    "--enable-cache-report", "--warmups", "--skip-server-warmup", "--base-gpu-id", "--gpu-id-step", "--download-dir",
    "--model-loader-extra-config", "--enable-request-time-stats-logging", "--radix-eviction-policy",
    "--fp8-gemm-backend", "--fp4-gemm-backend",
    "--load-balance-method", "--disable-shared-experts-fusion", "--speculative-attention-mode", "--numa-node",
    "--speculative-accept-threshold-single", "--speculative-accept-threshold-acc", "--max-queued-requests",
    "--enable-torch-compile", "--num-continuous-decode-steps", "--incremental-streaming-output", "--sleep-on-idle",
    "--collect-tokens-histogram", "--enable-mfu-metrics", "--preferred-sampling-params", "--weight-version",
    "--sampling-defaults", "--file-storage-path", "--mm-attention-backend", "--disable-flashinfer-autotune",
)  # fmt: skip
"""Flags that take no GPU memory worth a line."""


def parse_flags(
    argv: tuple[str, ...],
    environment: tuple[tuple[str, str], ...] = (),
    version: str | None = None,
    *,
    any_version: bool = False,
) -> Pasted:
    """A pasted `python -m sglang.launch_server ...` or `sglang serve ...`.

    Args:
        argv: the words after the program; from a log with `any_version`, when flags of any version are taken.
        environment: assignments before it.
        version: whose flags they are; the newest that was read where None.

    Raises:
        BadInput: a known flag has a value that it cannot have, or the version does not have a flag.
    """
    found = read_words(argv, "sglang", version, any_version=any_version)
    set_to = assign(found, TABLE, "sglang", version, any_version=any_version, kept=KEPT, harmless=HARMLESS, own=_OWN)
    values = {"engine": "sglang", "environment": environment, "model": "", **set_to.values}
    notes = list(twice(found.given, "sglang"))
    if any(name.startswith("speculative.") for name in values) and "speculative.algorithm" not in values:
        values = {name: value for name, value in values.items() if not name.startswith("speculative.")}
        notes.append("without --speculative-algorithm SGLang speculates not at all: its other flags change nothing")
    stray = strays(found.positional, any_version=any_version)
    return pasted(values, set_to, stray=stray, notes=tuple(notes))


def _groups(given: Given) -> dict[str, Any]:
    """Groups of ranks that share attention: since 0.5.22 what --dp-size and --enable-dp-attention said together."""
    groups = read(Flag(names=(given.name,), field="parallel.data", kind="integer"), given)
    return {"parallel.data": groups, "parallel.data_attention": groups > 1}


_OWN: Final = {
    "--attn-dp-size": _groups,
    "--revision": last_value("revision"),
    "--device": on_gpus,
    "--config": refuse_file,
}


def from_log(line: str) -> Pasted:
    """What the log's line of all arguments asks for; those that the engine resolved itself are there too.

    Raises:
        BadInput: a known argument has a value that it cannot have.
    """
    wanted = {*KEPT, *(name for flag in TABLE for name in flag.names)}
    return parse_flags(logged(line.partition("server_args=")[2], wanted), any_version=True)


def write_flags(configuration: Configuration) -> tuple[str, ...]:
    """Arguments of `python -m sglang.launch_server` for a configuration."""
    return (*write(TABLE, configuration), *configuration.flags)
