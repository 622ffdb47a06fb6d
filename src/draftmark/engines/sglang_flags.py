"""SGLang's launch flags. Names read in the wheels 0.4.6 to 0.5.23."""

from typing import Any, Final

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Pasted
from draftmark.engines.flags import Flag, configure, logged, named_layout, read, split, write

KV_DTYPES: Final = ("auto", "bfloat16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1")

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
    Flag(names=("--max-total-tokens",), field="pool_tokens", kind="tokens"),
    Flag(names=("--chunked-prefill-size",), field="chunk", kind="tokens"),
    Flag(names=("--context-length",), field="context", kind="tokens"),
    Flag(names=("--max-running-requests",), field="max_running", kind="integer"),
    Flag(names=("--page-size",), field="page", kind="tokens"),
    Flag(names=("--dtype",), field="dtype", kind="text", aliases=(("half", "float16"), ("float", "float32"))),
    Flag(
        names=("--kv-cache-dtype",),
        field="kv_dtype",
        kind="text",
        choices=KV_DTYPES,
        aliases=(("bf16", "bfloat16"),),
    ),
    Flag(names=("--quantization",), field="quantization", kind="text"),
    Flag(names=("--disable-cuda-graph",), field="graphs", kind="off"),
    Flag(names=("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"), field="graph_batch", kind="integer"),
    Flag(names=("--speculative-algorithm", "--speculative-algo"), field="speculative.algorithm", kind="text"),
    Flag(
        names=("--speculative-draft-model-path", "--speculative-draft-model"),
        field="speculative.draft_model",
        kind="text",
    ),
    Flag(names=("--speculative-num-steps",), field="speculative.steps", kind="integer"),
    Flag(names=("--speculative-eagle-topk",), field="speculative.top_k", kind="integer"),
    Flag(names=("--speculative-num-draft-tokens",), field="speculative.draft_tokens", kind="integer"),
    Flag(names=("--speculative-draft-window-size",), field="speculative.window", kind="tokens"),
)

KEPT: Final = (
    "--swa-full-tokens-ratio", "--mamba-full-memory-ratio", "--max-mamba-cache-size", "--disable-radix-cache",
    "--disable-overlap-schedule", "--max-prefill-tokens", "--attention-backend", "--prefill-attention-backend",
    "--decode-attention-backend", "--disable-prefill-cuda-graph", "--disable-decode-cuda-graph", "--device",
    "--mamba-ssm-dtype", "--moe-a2a-backend", "--enable-deepep-moe", "--disable-custom-all-reduce", "--moe-dp-size",
    "--disable-piecewise-cuda-graph", "--load-format", "--nnodes", "--mamba-scheduler-strategy",
    "--mamba-radix-cache-strategy", "--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend",
    "--nsa-decode-backend", "--disaggregation-mode", "--language-only",
)  # fmt: skip
"""Flags whose effect on memory the planner knows, kept verbatim in `flags`."""

HARMLESS: Final = (
    "--host", "--port", "--api-key", "--admin-api-key", "--served-model-name", "--trust-remote-code", "--revision",
    "--tokenizer-path", "--tokenizer-mode", "--tokenizer-worker-num", "--skip-tokenizer-init", "--chat-template",
    "--reasoning-parser", "--tool-call-parser", "--log-level", "--log-level-http", "--log-requests",
    "--log-requests-level", "--enable-metrics", "--watchdog-timeout", "--random-seed", "--schedule-policy",
    "--schedule-conservativeness", "--dist-init-addr", "--nccl-init-addr", "--node-rank", "--nccl-port",
    "--dist-timeout", "--grammar-backend", "--sampling-backend", "--stream-interval", "--decode-log-interval",
    "--enable-cache-report", "--warmups", "--skip-server-warmup", "--base-gpu-id", "--gpu-id-step", "--download-dir",
    "--model-loader-extra-config", "--enable-request-time-stats-logging", "--radix-eviction-policy",
    "--fp8-gemm-backend", "--fp8-gemm-runner-backend", "--fp4-gemm-runner-backend", "--moe-runner-backend",
    "--load-balance-method", "--disable-shared-experts-fusion", "--speculative-attention-mode", "--numa-node",
    "--speculative-accept-threshold-single", "--speculative-accept-threshold-acc", "--max-queued-requests",
    "--enable-torch-compile", "--num-continuous-decode-steps", "--incremental-streaming-output", "--sleep-on-idle",
    "--collect-tokens-histogram", "--enable-mfu-metrics", "--preferred-sampling-params", "--weight-version",
    "--sampling-defaults", "--file-storage-path", "--mm-attention-backend", "--disable-flashinfer-autotune",
)  # fmt: skip
"""Flags that take no GPU memory worth a line."""


def parse_flags(argv: tuple[str, ...], environment: tuple[tuple[str, str], ...] = ()) -> Pasted:
    """A pasted `python -m sglang.launch_server ...`.

    Raises:
        BadInput: a known flag has a value that it cannot have.
    """
    known = {name: flag for flag in TABLE for name in flag.names}
    values: dict[str, Any] = {"engine": "sglang", "environment": environment, "model": ""}
    kept: list[str] = []
    unknown: list[str] = []
    for given in split(argv):
        if given.name in known:
            values[known[given.name].field] = read(known[given.name], given)
        elif given.name in KEPT:
            kept += given.words
        elif given.name.startswith("--") and given.name not in HARMLESS:
            unknown.append(" ".join(given.words))
            kept += given.words
    if values.get("kv_dtype") == "auto":
        del values["kv_dtype"]
    if any(name.startswith("speculative.") for name in values):
        values.setdefault("speculative.algorithm", "none")
    return Pasted(
        configuration=configure({**values, "flags": tuple(kept)}),
        not_understood=tuple(unknown),
        layout=named_layout(values),
    )


def from_log(line: str) -> Pasted:
    """What the log's line of all arguments asks for; those that the engine resolved itself are there too.

    Raises:
        BadInput: a known argument has a value that it cannot have.
    """
    wanted = {*KEPT, *(name for flag in TABLE for name in flag.names)}
    return parse_flags(logged(line.partition("server_args=")[2], wanted))


def write_flags(configuration: Configuration) -> tuple[str, ...]:
    """Arguments of `python -m sglang.launch_server` for a configuration."""
    return (*write(TABLE, configuration), *configuration.flags)
