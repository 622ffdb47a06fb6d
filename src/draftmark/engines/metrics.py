"""The counters of a server's /metrics in one vocabulary: what each engine calls what."""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

Quantity = Literal["preemptions", "prompt", "generated", "cached", "verify_steps", "accepted"]

NAMES: Final[dict[Quantity, tuple[str, ...]]] = {
    "preemptions": (
        "vllm:num_preemptions_total",
        "sglang:num_retracted_requests_total",
        "draftmark_preemptions_total",
    ),
    "prompt": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "draftmark_prompt_tokens_total"),
    "generated": ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "draftmark_generated_tokens_total"),
    "cached": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "verify_steps": ("vllm:spec_decode_num_drafts_total", "sglang:spec_verify_calls_total"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
}
"""Counters by the names that engines expose. vLLM and SGLang (with --enable-metrics) sum over their processes."""


Name = TypeVar("Name", bound=str)


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the server's start, in tokens, requests and steps; None where it does not count."""

    preemptions: float | None = None
    prompt: float | None = None
    generated: float | None = None
    cached: float | None = None
    verify_steps: float | None = None
    accepted: float | None = None

    def since(self, before: "Counters") -> "Counters":
        """What was added; None where either side does not count."""
        added: dict[Quantity, float | None] = {}
        for quantity in NAMES:
            now, then = getattr(self, quantity), getattr(before, quantity)
            added[quantity] = None if now is None or then is None else now - then
        return Counters(**added)

    @property
    def went_back(self) -> bool:
        """As a difference: a total is smaller than before, so that the server is not the one it was."""
        return any((getattr(self, quantity) or 0) < 0 for quantity in NAMES)


def read_counters(text: str) -> Counters:
    """The counters in a Prometheus text, series of one name added up; unknown names are passed over."""
    wanted = {name: quantity for quantity, names in NAMES.items() for name in names}
    return Counters(**totals(text, wanted))


def totals(text: str, wanted: Mapping[str, Name]) -> dict[Name, float]:
    """Samples of a Prometheus text by what `wanted` calls them, series of one name added up; others are passed over."""
    found: dict[Name, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (name := wanted.get(sample.name)) is not None:
                found[name] = found.get(name, 0.0) + sample.value
    return found


def counters(client: httpx.Client, url: str) -> Counters | None:
    """The server's counters now; None where it has no /metrics that can be read."""
    try:
        reply = client.get(f"{url}/metrics")
    except httpx.HTTPError:
        return None
    if reply.status_code != 200:
        return None
    try:
        return read_counters(reply.text)
    except ValueError:
        return None
