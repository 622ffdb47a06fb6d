"""vLLM's launch flags. Names read in the wheels 0.6 to 0.33."""

import json
from typing import Any, Final

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Pasted
from draftmark.engines.flags import Flag, Given, configure, logged, named_layout, read, split, write
from draftmark.errors import BadInput

KV_DTYPES: Final = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4")

TABLE: Final = (
    Flag(names=("--tensor-parallel-size", "-tp"), field="parallel.tensor", kind="integer"),
    Flag(names=("--pipeline-parallel-size", "-pp"), field="parallel.pipeline", kind="integer"),
    Flag(names=("--data-parallel-size", "-dp"), field="parallel.data", kind="integer"),
    Flag(names=("--decode-context-parallel-size", "-dcp"), field="parallel.decode_context", kind="integer"),
    Flag(names=("--gpu-memory-utilization",), field="memory_fraction", kind="number"),
    Flag(names=("--max-num-batched-tokens",), field="chunk", kind="tokens"),
    Flag(names=("--max-model-len",), field="context", kind="tokens"),
    Flag(names=("--max-num-seqs",), field="max_running", kind="integer"),
    Flag(names=("--block-size",), field="page", kind="tokens"),
    Flag(names=("--dtype",), field="dtype", kind="text", aliases=(("half", "float16"), ("float", "float32"))),
    Flag(names=("--kv-cache-dtype",), field="kv_dtype", kind="text", choices=KV_DTYPES),
    Flag(names=("--quantization", "-q"), field="quantization", kind="text"),
    Flag(names=("--enforce-eager",), field="graphs", kind="off"),
)

KEPT: Final = (
    "--kv-cache-memory-bytes", "--kv-cache-memory", "--num-gpu-blocks-override", "--enable-expert-parallel",
    "--compilation-config", "-O", "--cudagraph-capture-sizes", "--max-cudagraph-capture-size",
    "--no-enable-prefix-caching", "--enable-prefix-caching", "--limit-mm-per-prompt", "--skip-mm-profiling",
    "--language-model-only", "--mamba-ssm-cache-dtype", "--mamba-cache-dtype", "--disable-hybrid-kv-cache-manager",
    "--load-format", "--attention-backend", "--device", "--swap-space", "--disable-custom-all-reduce",
    "--enable-chunked-prefill", "--no-enable-chunked-prefill", "--max-seq-len-to-capture", "--mamba-block-size",
)  # fmt: skip

HARMLESS: Final = (
    "--host", "--port", "--api-key", "--served-model-name", "--trust-remote-code", "--revision", "--tokenizer",
    "--tokenizer-mode", "--tokenizer-revision", "--chat-template", "--reasoning-parser", "--tool-call-parser",
    "--enable-auto-tool-choice", "--uvicorn-log-level", "--disable-log-stats", "--disable-log-requests",
    "--enable-log-requests", "--seed", "--download-dir", "--distributed-executor-backend", "--no-enable-log-requests",
    "--generation-config", "--override-generation-config", "--max-log-len", "--root-path", "--response-role",
    "--scheduling-policy", "--guided-decoding-backend", "--config-format", "--hf-overrides", "--async-scheduling",
    "--enable-prompt-tokens-details", "--enable-force-include-usage", "--middleware", "--disable-uvicorn-access-log",
    "--kv-events-config", "--otlp-traces-endpoint", "--ssl-keyfile", "--ssl-certfile", "--safetensors-load-strategy",
    "--disable-frontend-multiprocessing", "--api-server-count", "--headless", "--data-parallel-address",
    "--data-parallel-rpc-port", "--data-parallel-size-local", "--data-parallel-start-rank", "--enable-sleep-mode",
    "--default-chat-template-kwargs", "--task", "--runner", "--allowed-origins", "--moe-backend",
)  # fmt: skip

_SPECULATIVE: Final = ("--speculative-config", "-sc")


def parse_flags(argv: tuple[str, ...], environment: tuple[tuple[str, str], ...] = ()) -> Pasted:
    """A pasted `vllm serve MODEL ...` or `python -m vllm.entrypoints.openai.api_server --model MODEL ...`.

    Raises:
        BadInput: a known flag has a value that it cannot have.
    """
    known = {name: flag for flag in TABLE for name in flag.names}
    values: dict[str, Any] = {"engine": "vllm", "environment": environment, "model": ""}
    kept: list[str] = []
    unknown: list[str] = []
    for given in split(argv):
        if given.name == "--model" or (not given.name and given.values):
            values["model"] = given.values[-1] if given.values else ""
        elif given.name in known:
            values[known[given.name].field] = read(known[given.name], given)
        elif given.name in _SPECULATIVE:
            values |= speculative(given)
        elif given.name in KEPT:
            kept += given.words
        elif given.name not in HARMLESS:
            unknown.append(" ".join(given.words))
            kept += given.words
    if values.get("kv_dtype") == "auto":
        del values["kv_dtype"]
    expert = "--enable-expert-parallel" in kept
    if expert:
        values["parallel.expert"] = values.get("parallel.tensor", 1) * values.get("parallel.data", 1)
    return Pasted(
        configuration=configure({**values, "flags": tuple(kept)}),
        not_understood=tuple(unknown),
        layout=named_layout(values),
    )


def speculative(given: Given) -> dict[str, Any]:
    """vLLM's JSON for speculative decoding.

    Raises:
        BadInput: it is not a JSON object.
    """
    try:
        found = json.loads(" ".join(given.values))
    except json.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}", place=given.name, remedy="quote the object in the shell") from error
    if not isinstance(found, dict):
        raise BadInput("not a JSON object", place=given.name, remedy='write it like {"method": "mtp"}')
    return {
        "speculative.algorithm": str(found.get("method") or "draft_model"),
        "speculative.draft_model": found.get("model"),
        "speculative.draft_tokens": found.get("num_speculative_tokens"),
    }


def from_log(line: str) -> Pasted:
    """What the log's line of arguments that differ from the defaults asks for.

    Raises:
        BadInput: a known argument has a value that it cannot have.
    """
    words = logged(line.partition("args: ")[2].replace("'model_tag': ", "'served_model_name': "))
    return parse_flags(words)


def write_flags(configuration: Configuration) -> tuple[str, ...]:
    """Arguments after `vllm serve MODEL` for a configuration."""
    words = list(write(TABLE, configuration))
    draft = configuration.speculative
    if draft is not None:
        found: dict[str, Any] = {"method": draft.algorithm}
        if draft.draft_model is not None:
            found["model"] = draft.draft_model
        if draft.draft_tokens is not None:
            found["num_speculative_tokens"] = draft.draft_tokens
        words += ["--speculative-config", json.dumps(found)]
    if configuration.parallel.expert > 1 and "--enable-expert-parallel" not in configuration.flags:
        words.append("--enable-expert-parallel")
    return (*words, *configuration.flags)
