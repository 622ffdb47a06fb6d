"""vLLM's log, 0.6 to 0.33: its phases and what it states of memory."""

import re
from typing import Final

from draftmark.engines import rules
from draftmark.engines.rules import rule
from draftmark.observation import Observation, Phase, Source, Unit

_G: Final = r"-?[\d.]+"
_PREFIX: Final = re.compile(r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d\b")
_RANK: Final = re.compile(r"\((?:Vllm)?Worker(?:Proc)?(?:[_-](?P<tags>[A-Z\d_]+))? (?:rank=(?P<rank>\d+) )?pid=\d+\)")
_ARGUMENTS: Final[tuple[tuple[str, Unit, str], ...]] = (
    ("model", "text", "model"),
    ("memory_fraction", "ratio", "gpu_memory_utilization"),
    ("chunk", "tokens", "max_num_batched_tokens"),
    ("max_running", "requests", "max_num_seqs"),
    ("context_length", "tokens", "max_model_len"),
    ("page", "tokens", "block_size"),
    ("tensor_parallel", "requests", "tensor_parallel_size"),
    ("data_parallel", "requests", "data_parallel_size"),
    ("kv_dtype", "text", "kv_cache_dtype"),
    ("speculative", "text", "speculative_config"),
    ("graphs_off", "text", "enforce_eager"),
)
"""Our name and unit for the arguments that differ from the defaults, as the log lists them."""

RULES: Final = (
    rule(r"(?:vLLM API server|█.*?) version (?P<version_text>\d[\w.+]*)", "init"),
    rule(
        r"Initializing (?:a V1 LLM|an LLM) engine \(v(?P<version_text>[\w.+]+)\) with config:"
        r"(?:.*?dtype=(?:torch\.)?(?P<dtype_text>\w+), max_seq_len=(?P<context_length_tokens>\d+))?",
        "init",
    ),
    rule(r"Resolved architecture: (?P<model_class_text>\w+)", "init"),
    rule(r"Starting to load model ", "weights"),
    rule(rf"Loading model weights took (?P<weights_gib>{_G}) GB", "weights", "profile"),
    rule(
        rf"Loading drafter model|Loading draft(?:er)? weights took (?P<elapsed_s>{_G}) seconds",
        "weights",
    ),
    rule(
        rf"Model loading took (?P<weights_gib>{_G}) Gi?B(?: memory)?(?: and (?P<elapsed_s>[\d.]+) seconds)?",
        "weights",
        "profile",
    ),
    rule(r"Chunked prefill is enabled with max_num_batched_tokens=(?P<chunk_tokens>\d+)"),
    rule(r"Defaulting max_num_batched_tokens to (?P<chunk_tokens>\d+)"),
    rule(r"Defaulting max_num_seqs to (?P<max_running_requests>\d+)"),
    rule(r"Using max model len (?P<context_length_tokens>\d+)"),
    rule(
        r"the current vLLM instance can use total_gpu_memory \((?P<capacity_gib>[\d.]+)GiB\) x gpu_memory_utilization "
        r"\((?P<memory_fraction_ratio>[\d.]+)\) = (?P<budget_gib>[\d.]+)GiB",
        "profile",
    ),
    rule(
        rf"model weights take (?P<weights_gib>{_G})GiB; non_torch_memory takes (?P<communication_gib>{_G})GiB; PyTorch "
        rf"activation peak memory takes (?P<activations_gib>{_G})GiB; the rest of the memory reserved for KV Cache is "
        rf"(?P<pool_bytes_gib>{_G})GiB",
        "profile",
        "pool",
    ),
    rule(r"# (?:GPU|CUDA|cuda|cpu|CPU) blocks: (?P<blocks_blocks>\d+)(?:, # CPU blocks: \d+)?", "pool"),
    rule(rf"Available KV cache memory: (?P<pool_bytes_gib>{_G}) GiB", "profile", "pool"),
    rule(
        r"(?:GPU|CPU|[A-Z]+)(?: \+ host)? KV cache size: (?P<pool_tokens_tokens>[\d,]+) tokens"
        r"(?:, Maximum concurrency for (?P<context_length_tokens>[\d,]+) tokens per request: "
        r"(?P<concurrency_ratio>[\d.,]+)x)?",
        "pool",
    ),
    rule(
        r"Maximum concurrency for (?P<context_length_tokens>[\d,]+) tokens per request: "
        r"(?P<concurrency_ratio>[\d.,]+)x",
        "pool",
    ),
    rule(r"Multiplying the GPU KV cache size by the (?:dcp|cp)_world_size (?P<decode_context_requests>\d+)", "pool"),
    rule(
        rf"Initial free memory: (?P<free_gib>{_G}) GiB; Requested memory: (?P<memory_fraction_ratio>[\d.]+) \(util\), "
        rf"(?P<budget_gib>{_G}) GiB",
        "init",
    ),
    rule(
        r"Memory profiling takes (?P<elapsed_s>[\d.]+) seconds\. Total non KV cache memory: "
        rf"(?P<non_pool_gib>{_G})GiB; torch peak memory increase: (?P<activations_gib>{_G})GiB; "
        rf"(?:non-torch forward increase memory: (?P<communication_gib>{_G})GiB"
        rf"|total consumed \(from mem_get_info\): (?P<consumed_gib>{_G})GiB); weights memory: (?P<weights_gib>{_G})GiB",
        "profile",
    ),
    rule(
        rf"worker init memory snapshot: .*?free_memory=(?P<free_gib>{_G})GiB, total_memory=(?P<capacity_gib>{_G})GiB",
        "init",
    ),
    rule(
        rf"Free memory on device \((?P<free_gib>{_G})/(?P<capacity_gib>{_G}) GiB\) on startup\. Desired GPU memory "
        rf"utilization is \((?P<memory_fraction_ratio>[\d.]+), (?P<budget_gib>{_G}) GiB\)\. Actual usage is "
        rf"(?:(?P<weights_gib>{_G}) GiB for weight, (?P<activations_gib>{_G}) GiB for peak activation, "
        rf"(?P<communication_gib>{_G}) GiB for non-torch memory"
        rf"|(?P<consumed_gib>{_G}) GiB for consumed memory \(weights \+ non-torch\), (?P<peak_gib>{_G}) GiB for peak "
        rf"activation),? and (?P<graphs_gib>{_G}) GiB for CUDAGraph memory"
        rf".*?Current kv cache memory in use is (?:(?P<pool_bytes_gib>{_G}) GiB|(?P<pool_bytes_bytes>\d+) bytes)",
        "warm-up",
    ),
    rule(rf"Estimated CUDA graph memory: (?P<graphs_estimated_gib>{_G}) GiB total", "profile"),
    rule(r"Profiling CUDA graph memory: ", "profile"),
    rule(r"Capturing CUDA ?graphs?(?: shapes)?\b|Capturing the model for CUDA graphs|Capturing cudagraphs", "graphs"),
    rule(
        rf"Graph capturing finished in (?P<elapsed_s>\d+) secs?(?:, took (?P<graphs_gib>{_G}) GiB)?",
        "graphs",
        "warm-up",
    ),
    rule(
        rf"CUDA graph pool memory: (?P<graphs_gib>{_G}) GiB \(actual\), "
        rf"(?P<graphs_estimated_gib>{_G}) GiB \(estimated\)",
        "graphs",
        "warm-up",
    ),
    rule(
        r"The current --gpu-memory-utilization=(?P<memory_fraction_ratio>[\d.]+) is equivalent to "
        r"--gpu-memory-utilization=[\d.]+ without CUDA graph memory profiling"
    ),
    rule(r"Setting attention block size to (?P<page_tokens>\d+) tokens", "init"),
    rule(r"Padding mamba page size by (?P<padding_ratio>[\d.]+)%"),
    rule(r"Add (?P<padding_layers_requests>\d+) padding layers, may waste at most [\d.]+% KV cache memory", "pool"),
    rule(r"Hybrid KV cache manager is disabled"),
    rule(r"Auto-fit max_model_len: reduced from \d+ to (?P<context_length_tokens>\d+)", "pool"),
    rule(r"Auto-fit max_model_len: full model context length (?P<context_length_tokens>\d+) fits", "pool"),
    rule(
        r"Applying persisted startup plan \(fingerprint \w+\): kv_cache_memory_bytes=(?P<pool_bytes_bytes>\d+)", "pool"
    ),
    rule(r"Saved startup plan to (?P<startup_plan_text>\S+)"),
    rule(
        rf"Initial free memory (?P<free_gib>{_G}) GiB, reserved (?P<pool_bytes_gib>{_G}) ?GiB memory for KV Cache as "
        r"specified by kv_cache_memory_bytes",
        "pool",
    ),
    rule(rf"Explicitly set \((?P<pool_bytes_gib>{_G})/(?P<capacity_gib>{_G})\) GiB for KV cache on node \d+", "pool"),
    rule(r"cache_config_info with initialization after num_gpu_blocks is: (?P<blocks_blocks>\d+)"),
    rule(r"Encoder cache will be initialized with a budget of (?P<encoder_budget_tokens>\d+) tokens", "profile"),
    rule(
        rf"torch\.compile takes (?P<elapsed_s>{_G}) s in total|Compiling a graph for |Dynamo bytecode transform time",
        "profile",
    ),
    rule(r"init engine \(profile, create kv cache, warmup model\) took (?P<elapsed_s>[\d.]+) s", "warm-up"),
    rule(rf"Sleep mode freed (?P<slept_gib>{_G}) GiB memory, (?P<residual_gib>{_G}) GiB memory is still in use"),
    rule(r"Application startup complete", "ready"),
    rule(r"Starting vLLM (?:API )?server", "warm-up"),
)
_OFTEN: Final = re.compile(
    r"version \d|Initializing a|tarting |oading |Chunked|Defaulting|Using max|current vLLM|model weights take|"
    r"Resolved arch|"
    r"KV [Cc]ache| blocks: |Maximum conc|Multiplying|Initial free|Memory prof|memory snapshot|Free mem|CUDA ?[Gg]raph|"
    r"cudagraphs|Graph cap|--gpu-mem|Setting att|Padding|padding|Auto-fit|startup plan|Encoder cache|torch\.compile|"
    r"Compiling|Dynamo|init engine|Sleep mode|Application|num_gpu_blocks|Throughput|throughput"
)
_RUNNING: Final = re.compile(r"throughput: .*Running: (\d+) reqs?, Waiting: (\d+)")
_START: Final = re.compile(
    r"(?:non-default args: |\] args: )(?P<listed>\{.*\}|Namespace\(.*)|vLLM API server version |█.* version \d"
)
"""What begins a log: the banner, and after it the arguments, all of them up to 0.8."""


class VllmReader:
    """Reads one log; several workers may write to it in turns, and several starts may follow each other."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._started: int | None = None
        """Line of the last banner or list of arguments."""
        self._listed = False
        """Whether the present start has listed its arguments: whatever follows that again is of the next one."""
        self.phase: Phase = "init"

    def feed(self, line: str, number: int) -> tuple[Observation, ...]:
        """Observations that one line gives."""
        if not _OFTEN.search(line):
            return self._start_or_unknown(line, number)
        source = Source(place=self._place, line=number, text=line[: rules.KEPT_TEXT])
        started = self._start_or_unknown(line, number, known=True)
        if running := _RUNNING.search(line):
            self.phase = "decode" if int(running.group(1)) and self._serving else self.phase
            return started
        found = rules.match(RULES, line)
        if found is None:
            return started or self._start_or_unknown(line, number)
        one, matched = found
        self.phase = one.phase or self.phase
        seen = rules.observe(rules.quantities(matched), source, _rank(line), self.phase)
        self.phase = one.then or self.phase
        return (*started, *seen)

    @property
    def _serving(self) -> bool:
        return self.phase in {"ready", "prefill", "decode"}

    def _start_or_unknown(self, line: str, number: int, *, known: bool = False) -> tuple[Observation, ...]:
        """What the lines that begin a log say; an amount of memory that no rule knows is reported."""
        source = Source(place=self._place, line=number, text=line[: rules.KEPT_TEXT])
        stated: dict[str, tuple[float | int | str, Unit]] = {}
        if start := _START.search(line):
            if self._started is None or self._listed or number - self._started > _BANNER_LINES:
                self.phase = "init"
                stated["start"] = ("vllm", "text")
            self._started, self._listed = number, start["listed"] is not None
            stated |= _arguments(start["listed"] or "")
        elif not known and not self._serving and _PREFIX.search(line) and rules.speaks_of_memory(line):
            stated["not_understood"] = (line[:300], "text")
        return rules.observe(stated, source, _rank(line), self.phase)


_BANNER_LINES: Final = 40
"""A banner and the list of arguments that follows it this closely belong to one start."""


def _arguments(text: str) -> dict[str, tuple[float | int | str, Unit]]:
    stated: dict[str, tuple[float | int | str, Unit]] = {}
    for quantity, unit, field in _ARGUMENTS:
        if value := re.search(rf"\b{field}(?:': |=)(?:'([^']*)'|([^,)}}]+))", text):
            words = value.group(1) or value.group(2)
            if words not in {"None", ""}:
                stated[quantity] = (rules.as_unit(words, unit), unit)
    return stated


def _rank(line: str) -> int | None:
    """Rank by the worker's prefix (`Worker_TP3` is 3, `Worker_PP1_TP3` is 103); None for other processes."""
    worker = _RANK.search(line)
    if worker is None:
        return None
    if worker.group("rank"):
        return int(worker.group("rank"))
    numbers = {name: int(value) for name, value in re.findall(r"([A-Z]+)(\d+)", worker.group("tags") or "")}
    return numbers.get("TP", 0) + 100 * numbers.get("PP", 0)
