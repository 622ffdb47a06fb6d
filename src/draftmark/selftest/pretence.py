"""What the ground-truth server knows of itself, behind all of its connections."""

import msgspec

from draftmark.selftest.model import Encode, Fault, PrefixCache, Setup
from draftmark.selftest.schedule import Answer


class Truth(msgspec.Struct, kw_only=True):
    """One request as the server saw it: when it was read, and when which cumulative tokens were sent."""

    seed: int | None
    prompt_tokens: int
    received: float
    step: float
    sends: list[tuple[float, int]] = msgspec.field(default_factory=list)


class Pretence:
    """The state behind all connections."""

    def __init__(self, setup: Setup, encode: Encode) -> None:
        self.setup, self.encode = setup, encode
        self.cache = PrefixCache()
        self.log: list[Truth] = []
        self.requests = 0
        self.preempted = 0
        self.counted = {"prompt_tokens": 0, "generation_tokens": 0, "prefix_cache_hits": 0}

    def metrics(self) -> str:
        """Prometheus text, with vLLM's names."""
        totals = self.counted | {"num_preemptions": self.preempted}
        return "".join(f"vllm:{name}_total {total}\n" for name, total in totals.items())

    def count(self, answer: Answer) -> None:
        """Add a request to the counters, which never lie."""
        self.counted["prompt_tokens"] += answer.prompt_tokens
        self.counted["generation_tokens"] += answer.output
        self.counted["prefix_cache_hits"] += answer.cached_tokens or 0

    def fault(self) -> Fault | None:
        """The fault of the request that just came, if it is its turn."""
        fault = self.setup.fault
        return fault if fault is not None and self.requests > fault.requests else None
