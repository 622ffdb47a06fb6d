"""SGLang's log, 0.4.0 to 0.5.23: its phases and what it states of memory. What it calls GB is GiB."""

import re
from typing import Final

from draftmark.engines import rules
from draftmark.engines.rules import rule
from draftmark.observation import Observation, Phase, Source, Unit

_GB: Final = r"-?[\d.]+"

START: Final = re.compile(r"\bserver_args=(?:ServerArgs\(|\{)")
_ARGUMENTS: Final[tuple[tuple[str, Unit, str], ...]] = (
    ("model", "text", "model_path"),
    ("memory_fraction", "ratio", "mem_fraction_static"),
    ("chunk", "tokens", "chunked_prefill_size"),
    ("pool_tokens_asked", "tokens", "max_total_tokens"),
    ("max_running", "requests", "max_running_requests"),
    ("context_length", "tokens", "context_length"),
    ("page", "tokens", "page_size"),
    ("tensor_parallel", "requests", "tp_size"),
    ("data_parallel", "requests", "dp_size"),
    ("graph_batch", "requests", "cuda_graph_max_bs"),
    ("speculative", "text", "speculative_algorithm"),
    ("attention_backend", "text", "attention_backend"),
    ("custom_all_reduce_off", "text", "disable_custom_all_reduce"),
    ("graphs_off", "text", "disable_cuda_graph"),
)
"""Our name and unit for fields of the line that lists all arguments as resolved."""

_STAMP: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_TAGS: Final = re.compile(r"\[(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?((?: ?(?:[A-Z]{2,4})\d+)+)\]")

RULES: Final = (
    rule(r"Init (?:torch distributed|parallel) begin\.", "init"),
    rule(
        r"Init torch distributed ends\.(?: elapsed=(?P<elapsed_s>[\d.]+) s,)? "
        rf"mem usage=(?P<communication_gib>{_GB}) GB",
        "init",
    ),
    rule(r"Init parallel ends\. elapsed=(?P<elapsed_s>[\d.]+) s", "init"),
    rule(rf"Memory baseline taken\. mem usage=(?P<baseline_gib>{_GB}) GB", "init"),
    rule(rf"Load weight begin\. avail mem=(?P<free_gib>{_GB}) GB", "weights"),
    rule(r"Load weight end\. Committed real weights after CUDA graph capture in (?P<elapsed_s>[\d.]+) s"),
    rule(
        rf"Load weight end\. (?:elapsed=(?P<elapsed_s>[\d.]+) s, )?(?:type=(?P<model_class_text>\w+), )?"
        rf"(?:dtype=(?P<dtype_text>[\w.]+), )?.*?avail mem=(?P<free_gib>{_GB}) GB"
        rf"(?:, mem usage=(?P<weights_gib>{_GB}) GB)?",
        "weights",
        "pool",
    ),
    rule(
        r"KV Cache VA upper bound\. (?:dtype: (?P<kv_dtype_text>[\w.]+), )?#tokens: (?P<pool_bound_tokens>\d+)", "pool"
    ),
    rule(
        r"KV Cache is allocated\. (?:dtype: (?P<kv_dtype_text>[\w.]+), )?"
        r"(?:#tokens: (?P<pool_tokens_tokens>\d+)(?:, )?)?"
        rf"(?:K size: (?P<pool_bytes1_gib>{_GB}) GB, V size: (?P<pool_bytes2_gib>{_GB}) GB"
        rf"|KV size: (?P<pool_bytes_gib>{_GB}) GB)?",
        "pool",
    ),
    rule(r"KV Cache skipped \(no-op pool\)\. Logical #tokens: (?P<pool_tokens_tokens>\d+)", "pool"),
    rule(
        r"Use [Ss]liding window memory pool(?: \(all SWA\))?\. (?:full_layer_tokens=(?P<full_tokens_tokens>\d+), )?"
        r"swa_layer_tokens=(?P<window_tokens_tokens>\d+)",
        "pool",
    ),
    rule(
        rf"SWAKVPool mem usage: (?P<windowed_pool_gib>{_GB}) GB, swa size: (?P<window_tokens_tokens>\d+), "
        r"full size: (?P<full_tokens_tokens>\d+)",
        "pool",
    ),
    rule(r"SWAKVPool VA upper bound: ", "pool"),
    rule(
        rf"Mamba Cache is allocated\. (?:max_mamba_cache_size: (?P<state_slots_requests>\d+), )?"
        rf"conv_state size: (?P<state_pool_bytes1_gib>{_GB})GB, ssm_state size: (?P<state_pool_bytes2_gib>{_GB})GB"
        rf"(?: intermediate_ssm_state_cache size: (?P<state_pool_bytes3_gib>{_GB})GB "
        rf"intermediate_conv_window_cache size: (?P<state_pool_bytes4_gib>{_GB})GB)?",
        "pool",
    ),
    rule(
        r"GDN ReplaySSM ring buffers allocated .*?: d=(?P<state_pool_bytes1_gib>[\d.]+)GB, "
        r"k=(?P<state_pool_bytes2_gib>[\d.]+)GB, g=(?P<state_pool_bytes3_gib>[\d.]+)GB",
        "pool",
    ),
    rule(
        rf"DSV4 memory calculation: .*?bytes_per_full_token=(?P<bytes_per_token_bytes>[\d.]+), "
        rf"available_bytes=(?P<pool_budget_gib>{_GB}) GB, .*?full_token=(?P<full_tokens_tokens>\d+)",
        "pool",
    ),
    rule(
        r"DSV4 pool sizes: full=(?P<full_tokens_tokens>\d+), swa=(?P<window_tokens_tokens>\d+), c4=\d+, c128=\d+",
        "pool",
    ),
    rule(rf"Memory pool end\. avail mem=(?P<free_gib>{_GB}) GB", "pool"),
    rule(
        r"Post-capture KV sizing: max_total_num_tokens=(?P<pool_tokens_tokens>\d+), free memory=(?P<free_gib>[\d.]+) GB"
    ),
    rule(
        r"Post-capture KV sizing: full_layer_tokens=(?P<full_tokens_tokens>\d+), "
        r"swa_layer_tokens=(?P<window_tokens_tokens>\d+)"
    ),
    rule(
        r"Post-capture KV sizing: (?P<draft_text>draft )?KV cache allocated\. dtype: (?P<kv_dtype_text>\S+), "
        r"#tokens: (?P<pool_tokens_tokens>\d+), KV size: (?P<pool_bytes_gib>[\d.]+) GB"
        rf"(?:, avail mem=(?P<free_gib>{_GB}) GB)?"
    ),
    rule(
        rf"Capture (?!.*failed).*\bbegin\b"
        r"(?:.*? (?:bs=\[(?:\d+, )*(?P<captured_requests>\d+)|num_tokens=\[(?:\d+, )*(?P<captured_tokens>\d+))\])?"
        rf".*avail mem=(?P<free_gib>{_GB}) GB",
        "graphs",
    ),
    rule(r"Capture (?:cuda|cpu|CUDA|CPU|npu) graph begin\.", "graphs"),
    rule(
        rf"Capture (?!.*failed).*\bend\b.*?(?:elapsed=|Time elapsed: )(?P<elapsed_s>[\d.]+) s\b"
        rf"(?:.*?mem usage=(?P<graphs_gib>{_GB}) GB[.,]? avail mem=(?P<free_gib>{_GB}) GB"
        rf"|.*?avail mem=(?P<free1_gib>{_GB}) GB\. mem usage=(?P<graphs1_gib>{_GB}) GB)?",
        "graphs",
    ),
    rule(
        rf"Capturing[^\r]*\((?:bs=\d+ |num_tokens=\d+ )?avail_mem=(?P<free_gib>{_GB}) GB\)[^\r]*$",
        "graphs",
    ),
    rule(
        r"max_total_num_tokens=(?P<pool_tokens_tokens>\d+), (?:chunked_prefill_size=(?P<chunk_tokens>-?\d+), )?"
        r"max_prefill_tokens=\d+, max_running_requests=(?P<max_running_requests>\d+), "
        rf"context_len=(?P<context_length_tokens>\d+)(?:, available_(?:gpu|cpu)_mem=(?P<free_gib>{_GB}) GB)?",
        "warm-up",
    ),
    rule(
        r"max_total_tokens=(?P<pool_tokens_asked_tokens>\d+) is larger than the profiled value "
        r"(?P<profiled_tokens>-?\d+)"
    ),
    rule(
        r"max_running_requests is capped to (?P<max_running_requests>\d+) by the mamba state cache "
        r"\(max_mamba_cache_size=(?P<state_slots_requests>\d+)"
    ),
    rule(r"max_running_requests was reduced from the requested \d+ to (?P<max_running_requests>\d+)"),
    rule(r"DP attention is enabled\. .*chunked prefill size is adjusted (?:from -?\d+ )?to (?P<chunk_tokens>-?\d+)"),
    rule(r"Reserving (?P<multimodal_gib>[\d.]+) GB of the KV budget for post-sizing multimodal"),
    rule(r"Pre-allocating symmetric memory pool with (?P<symmetric_gib>[\d.]+) GiB"),
    rule(r"Built adaptive runtime state .*mem=(?P<graphs_gib>[\d.]+)GB", "graphs"),
    rule(r"Allocating (?P<host_cache_gib>[\d.]+) GB host memory"),
    rule(r"Graph pool pre-carved: (?P<graphs_gib>[\d.]+) GB", "graphs"),
    rule(r"\[unified-memory-pool\] UnifiedKVPool \w+: total_bytes=(?P<pool_bytes_gib>[\d.]+) GB", "pool"),
    rule(r"\[unified-memory-pool\]  "),
    rule(r"The server is fired up and ready to roll!", "ready"),
    rule(r"\bPrefill batch\b", "prefill"),
    rule(r"\bDecode batch\b", "decode"),
)
_SERVING: Final = frozenset({"ready", "prefill", "decode"})
_OFTEN: Final = re.compile(
    r"Init |Load weight|Memory |KV |SWA|[Ss]liding window|Mamba |GDN |DSV4 |[Pp]ost-capture|Captur|max_total_|"
    r"max_running_requests |DP attention|Reserving|Pre-allocating|Built adaptive|Allocating|Graph pool|unified-memory|"
    r"fired up|Prefill batch|Decode batch"
)
"""What a line must have before the rules are tried, because most lines have nothing."""


class SglangReader:
    """Reads one log; several ranks may write to it in turns, and several starts may follow each other."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._begin()

    def _begin(self) -> None:
        self.phase: Phase = "init"
        self._served = False
        self._by_rank: dict[int | None, Phase] = {}
        self._pools_made: set[int | None] = set()
        self._weights_loaded: set[int | None] = set()

    def feed(self, line: str, number: int) -> tuple[Observation, ...]:
        """Observations that one line gives."""
        source = Source(place=self._place, line=number, text=line[: rules.KEPT_TEXT])
        if START.search(line):
            self._begin()
            return self._arguments(line, source)
        found = rules.match(RULES, line) if _OFTEN.search(line) else None
        if found is None:
            return self._unknown(line, source)
        rank = _rank(line)
        one, matched = found
        self._enter(one.phase, rank)
        stated = rules.quantities(matched)
        if "draft" in stated or rank in self._pools_made:
            stated = {_as_draft(quantity): value for quantity, value in stated.items() if quantity != "draft"}
        if "weights" in stated and rank in self._weights_loaded:
            stated["draft_weights"] = stated.pop("weights")
        self._remember(line, rank)
        seen = rules.observe(stated, source, rank, self.phase)
        self._enter(one.then, rank)
        return seen

    def _enter(self, phase: Phase | None, rank: int | None) -> None:
        """Follow the furthest rank, but let a rank that is not behind begin anew (a draft model is loaded late)."""
        if phase is None or (phase in {"prefill", "decode"} and not self._served):
            return
        behind = _order(self._by_rank.get(rank, "init")) < _order(self.phase)
        if not (behind and _order(phase) < _order(self.phase)):
            self.phase = phase
        self._by_rank[rank] = phase
        self._served = self._served or phase in _SERVING

    def _remember(self, line: str, rank: int | None) -> None:
        if "Load weight end. " in line:
            self._weights_loaded.add(rank)
        elif "Memory pool end" in line:
            self._pools_made.add(rank)

    def _arguments(self, line: str, source: Source) -> tuple[Observation, ...]:
        """The arguments that matter; each quotes its own part of the line, which has thousands of characters."""
        seen = [*rules.observe({"start": ("sglang", "text")}, source, None, "init")]
        for quantity, unit, field in _ARGUMENTS:
            found = re.search(rf"\b{field}['\"]?[=:] ?(?:'([^']*)'|([^,)}}]+))", line)
            text = (found.group(1) or found.group(2)) if found is not None else None
            if found is None or text in {None, "None", ""}:
                continue
            part = Source(place=source.place, line=source.line, text=found.group())
            seen += rules.observe({quantity: (rules.as_unit(text, unit), unit)}, part, None, "init")
        return tuple(seen)

    def _unknown(self, line: str, source: Source) -> tuple[Observation, ...]:
        if self._served or not _STAMP.search(line) or not rules.speaks_of_memory(line):
            return ()
        return rules.observe({"not_understood": (line[:300], "text")}, source, _rank(line), self.phase)


_PHASES: Final[tuple[Phase, ...]] = (
    "init", "weights", "profile", "pool", "graphs", "warm-up", "ready", "prefill", "decode"
)  # fmt: skip


def _order(phase: Phase) -> int:
    """Prefill and decode come in turns, so both are as far as ready."""
    return min(_PHASES.index(phase), _PHASES.index("ready"))


def _rank(line: str) -> int | None:
    """Rank by the line's prefix (`TP3` is 3, `PP1 TP3` is 103); None where it has none."""
    tags = _TAGS.search(line)
    if tags is None:
        return None
    numbers = {name: int(value) for name, value in re.findall(r"([A-Z]+)(\d+)", tags.group(1))}
    return numbers.get("TP", 0) + 100 * numbers.get("PP", 0)


def _as_draft(quantity: str) -> str:
    """What is stated after a rank's pool was made belongs to the draft model."""
    return {"pool_tokens": "draft_pool_tokens", "pool_bytes": "draft_pool_bytes"}.get(quantity, quantity)
