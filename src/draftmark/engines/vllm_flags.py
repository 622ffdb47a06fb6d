"""vLLM's launch flags: those that our vocabulary has words for, and those whose effect on memory is known."""

import json
from typing import Any, Final

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Pasted
from draftmark.engines.flags import (
    Flag,
    assign,
    last_value,
    on_gpus,
    pasted,
    refuse_file,
    write,
)
from draftmark.engines.listed import logged
from draftmark.engines.offered import choices
from draftmark.engines.words import Given, read_words, strays, twice
from draftmark.errors import BadInput

TABLE: Final = (
    Flag(names=("--tensor-parallel-size", "-tp"), field="parallel.tensor", kind="integer"),
    Flag(names=("--pipeline-parallel-size", "-pp"), field="parallel.pipeline", kind="integer"),
    Flag(names=("--data-parallel-size", "-dp"), field="parallel.data", kind="integer"),
    Flag(names=("--decode-context-parallel-size", "-dcp"), field="parallel.decode_context", kind="integer"),
    Flag(names=("--gpu-memory-utilization",), field="memory_fraction", kind="number"),
    Flag(names=("--max-num-batched-tokens",), field="chunk", kind="binary"),
    Flag(names=("--max-model-len",), field="context", kind="binary"),
    Flag(names=("--max-num-seqs",), field="max_running", kind="integer"),
    Flag(names=("--block-size",), field="page", kind="integer"),
    Flag(names=("--dtype",), field="dtype", kind="text", aliases=(("half", "float16"), ("float", "float32"))),
    Flag(names=("--kv-cache-dtype",), field="kv_dtype", kind="text"),
    Flag(names=("--quantization", "-q"), field="quantization", kind="text"),
    Flag(names=("--enforce-eager",), field="graphs", kind="off"),
)

KEPT: Final = (
    "--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--enable-expert-parallel", "--limit-mm-per-prompt",
    "--skip-mm-profiling", "--language-model-only", "--mamba-ssm-cache-dtype", "--disable-hybrid-kv-cache-manager",
    "--attention-backend", "--disable-custom-all-reduce", "--load-format", "--kv-transfer-config",
    "--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-chunked-prefill", "--nnodes",
)  # fmt: skip
"""Flags whose effect on memory the planner knows, kept verbatim in `flags`."""

HARMLESS: Final = (
    "--host", "--port", "--api-key", "--served-model-name", "--trust-remote-code", "--tokenizer",
    "--tokenizer-mode", "--tokenizer-revision", "--chat-template", "--reasoning-parser", "--tool-call-parser",
    "--enable-auto-tool-choice", "--uvicorn-log-level", "--disable-log-stats", "--disable-log-requests",
    "--enable-log-requests", "--seed", "--download-dir", "--distributed-executor-backend", "--no-enable-log-requests",
    "--generation-config", "--override-generation-config", "--max-log-len", "--root-path", "--response-role",
    "--scheduling-policy", "--guided-decoding-backend", "--async-scheduling", "--swap-space",
    "--enable-prompt-tokens-details", "--enable-force-include-usage", "--middleware", "--disable-uvicorn-access-log",
    "--kv-events-config", "--otlp-traces-endpoint", "--ssl-keyfile", "--ssl-certfile", "--safetensors-load-strategy",
    "--disable-frontend-multiprocessing", "--api-server-count", "--headless", "--data-parallel-address",
    "--data-parallel-rpc-port", "--data-parallel-size-local", "--data-parallel-start-rank",
    "--node-rank", "--master-addr", "--master-port",
    "--default-chat-template-kwargs", "--task", "--runner", "--allowed-origins", "--moe-backend",
)  # fmt: skip

"""Flags that take no GPU memory worth a line. Chunked prefill and prefix caching are on unless told otherwise."""

_OWN_WORDS: Final = ("method", "model", "num_speculative_tokens")
"""Settings of speculation that our vocabulary has words for."""
_DRAFTING_HARMLESS: Final = (
    "prompt_lookup_max", "prompt_lookup_min", "revision", "code_revision", "disable_by_batch_size", "acceptance_method",
    "rejection_sample_method", "draft_sample_method", "disable_log_stats", "disable_logprobs",
    "disable_padded_drafter_batch", "disable_eagle_block_drop", "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "suffix_decoding_max_cached_requests",
    "synthetic_acceptance_rates", "synthetic_acceptance_length", "index_share_for_mtp_iteration",
)  # fmt: skip
"""Settings of speculation that take no GPU memory worth a line (0.32.0, config/speculative.py, and older ones)."""
_COMPILATION: Final = ("--compilation-config", "--optimization-level")


def parse_flags(
    argv: tuple[str, ...],
    environment: tuple[tuple[str, str], ...] = (),
    version: str | None = None,
    *,
    any_version: bool = False,
) -> Pasted:
    """A pasted `vllm serve MODEL ...` or `python -m vllm.entrypoints.openai.api_server --model MODEL ...`.

    Args:
        argv: the words after the program; from a log with `any_version`, when flags of any version are taken.
        environment: assignments before it.
        version: whose flags they are; the newest that was read where None.

    Raises:
        BadInput: a known flag has a value that it cannot have, or the version does not have a flag.
    """
    found = read_words(argv, "vllm", version, any_version=any_version)
    own = {
        "--model": last_value("model"),
        "--revision": last_value("revision"),
        "--device": on_gpus,
        "--config": refuse_file,
        "--speculative-config": lambda given: speculative(given, choices("vllm", given.name, version)),
        **dict.fromkeys(_COMPILATION, lambda given: {"graphs": False} if without_graphs(given) else None),
    }
    set_to = assign(found, TABLE, "vllm", version, any_version=any_version, kept=KEPT, harmless=HARMLESS, own=own)
    model = "".join(found.positional[:1])
    values = {"engine": "vllm", "environment": environment, "model": model, **set_to.values}
    if "--enable-expert-parallel" in set_to.kept:
        values["parallel.expert"] = values.get("parallel.tensor", 1) * values.get("parallel.data", 1)
    stray = strays(found.positional[1:], any_version=any_version)
    return pasted(values, set_to, stray=(*unplanned(values), *stray), notes=twice(found.given, "vllm"))


def without_graphs(given: Given) -> bool:
    """Whether compilation settings do nothing but switch CUDA graphs off: level 0, or a mode of graphs that is none."""
    text = "".join(given.values)
    try:
        settings = json.loads(text)
    except json.JSONDecodeError:
        return False
    if not isinstance(settings, dict):
        return bool(settings == 0)
    off = {"level": 0, "mode": 0, "cudagraph_mode": "NONE", "use_cudagraph": False}
    return bool(settings) and all(name in off and value == off[name] for name, value in settings.items())


def speculative(given: Given, known: tuple[str, ...]) -> dict[str, Any]:
    """vLLM's JSON for speculative decoding; `known` are the methods of the version, where it lists them.

    Raises:
        BadInput: it is not a JSON object, or the method is not known.
    """
    try:
        found = json.loads(" ".join(given.values))
    except json.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}", place=given.name, remedy="quote the object in the shell") from error
    if not isinstance(found, dict):
        raise BadInput("not a JSON object", place=given.name, remedy='write it like {"method": "mtp"}')
    values = {"speculative.algorithm": method(found), "speculative.draft_tokens": found.get("num_speculative_tokens")}
    if known and values["speculative.algorithm"] not in known:
        cause = f"unknown method {values['speculative.algorithm']!r}"
        raise BadInput(cause, place=given.name, remedy=f"known: {', '.join(known)}")
    others = tuple((name, json.dumps(value)) for name, value in found.items() if name not in _OWN_WORDS)
    return values | {"speculative.draft_model": found.get("model"), "speculative.others": others}


def unplanned(values: dict[str, Any]) -> tuple[str, ...]:
    """Settings of speculation that may change memory and are in no formula, as flags of their own."""
    others = values.get("speculative.others", ())
    return tuple(f"--speculative-config.{name} {text}" for name, text in others if name not in _DRAFTING_HARMLESS)


def method(settings: dict[str, Any]) -> str:
    """The method, or what vLLM takes it to be by the draft's name (0.32.0's config/speculative.py)."""
    named, draft = settings.get("method"), str(settings.get("model") or "").lower()
    if named is not None:
        return str(named).strip("[]")
    if draft in ("ngram", "[ngram]"):
        return "ngram"
    by_name = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
    return next((one for part, one in by_name.items() if part in draft), "draft_model")


def from_log(line: str) -> Pasted:
    """What the log's line of arguments that differ from the defaults asks for.

    Raises:
        BadInput: a known argument has a value that it cannot have.
    """
    words = logged(line.partition("args: ")[2].replace("'model_tag': ", "'served_model_name': "))
    return parse_flags(words, any_version=True)


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
        found |= {name: json.loads(text) for name, text in draft.others}
        words += ["--speculative-config", json.dumps(found)]
    if configuration.parallel.expert > 1 and "--enable-expert-parallel" not in configuration.flags:
        words.append("--enable-expert-parallel")
    return (*words, *configuration.flags)
