"""One start that went wrong, as the rules see it: what is known of its settings and memory, and the engine's flags."""

from collections.abc import Iterable
from typing import Final, Literal

from draftmark.configuration import Configuration, EngineName
from draftmark.diagnose.log import Failure, Start
from draftmark.diagnose.signs import Sign
from draftmark.finding import Change, Direction
from draftmark.observation import Observation
from draftmark.units import GIB, MIB

Knob = Literal["fraction", "context", "chunk", "requests", "graphs", "no graphs", "pool", "gpus", "replicas"]

FLAGS: Final[dict[EngineName | None, dict[Knob, str]]] = {
    "sglang": {
        "fraction": "--mem-fraction-static",
        "context": "--context-length",
        "chunk": "--chunked-prefill-size",
        "requests": "--max-running-requests",
        "graphs": "--cuda-graph-max-bs",
        "no graphs": "--disable-cuda-graph",
        "pool": "--max-total-tokens",
        "gpus": "--tp-size",
        "replicas": "--dp-size",
    },
    "vllm": {
        "fraction": "--gpu-memory-utilization",
        "context": "--max-model-len",
        "chunk": "--max-num-batched-tokens",
        "requests": "--max-num-seqs",
        "graphs": "--max-cudagraph-capture-size",
        "no graphs": "--enforce-eager",
        "pool": "--kv-cache-memory-bytes",
        "gpus": "--tensor-parallel-size",
        "replicas": "--data-parallel-size",
    },
    "embedded": {
        "fraction": "--mem-fraction",
        "context": "--context",
        "chunk": "--chunk",
        "requests": "--max-running",
        "pool": "--pool-tokens",
    },
    None: {
        "fraction": "the engine's memory fraction",
        "context": "the longest request",
        "chunk": "the prefill chunk",
        "requests": "the most requests at once",
        "graphs": "the captured batch sizes",
        "no graphs": "graph capture off",
        "pool": "the pool",
        "gpus": "the GPUs that the model is split over",
        "replicas": "the replicas",
    },
}
"""How each engine spells each knob; an engine without a knob has no entry."""
EXPANDABLE: Final = "PYTORCH_CUDA_ALLOC_CONF"
HIGH_FRACTION: Final = 0.97
"""Above this nothing is left to raise: contexts and activations need the rest."""


class Case:
    """One start with what is known of it."""

    def __init__(self, start: Start, configuration: Configuration | None) -> None:
        self.start = start
        self.configuration = configuration
        self.engine: EngineName | None = configuration.engine if configuration is not None else start.engine

    def signs(self, *names: str) -> list[Sign]:
        """All signs of these names, in the order of the log."""
        found = [sign for name in names for sign in self.start.signs.get(name, [])]
        return sorted(found, key=lambda sign: sign.source.line or 0)

    @property
    def failure(self) -> Failure | None:
        """The first allocation that failed: what came after it is its consequence."""
        return self.start.failures[0] if self.start.failures else None

    def seen(self, quantity: str) -> Observation | None:
        """The last observation of a quantity."""
        return next((one for one in reversed(self.start.observations) if one.quantity == quantity), None)

    def number(self, quantity: str) -> float | None:
        """The last number stated for a quantity."""
        seen = self.seen(quantity)
        return float(seen.value) if seen is not None and not isinstance(seen.value, str) else None

    def failed(self, quantity: str) -> float | None:
        """A number of the first failed allocation: tried, free_at_failure, reserved_unallocated, capacity."""
        for one in self.failure.observations if self.failure is not None else ():
            if one.quantity == quantity and not isinstance(one.value, str):
                return float(one.value)
        return None

    @property
    def fraction(self) -> float | None:
        """The engine's memory fraction, as given or as the log states it."""
        given = self.configuration.memory_fraction if self.configuration is not None else None
        return given if given is not None else self.number("memory_fraction")

    @property
    def chunk(self) -> int | None:
        """Tokens of one prefill step."""
        given = self.configuration.chunk if self.configuration is not None else None
        stated = given if given is not None else self.number("chunk")
        return int(stated) if stated is not None and stated > 0 else None

    @property
    def requests(self) -> int | None:
        """Most requests at once."""
        given = self.configuration.max_running if self.configuration is not None else None
        stated = given if given is not None else self.number("max_running")
        return int(stated) if stated is not None else None

    @property
    def capacity(self) -> float | None:
        """Bytes of the device."""
        return self.failed("capacity") or self.number("capacity")

    @property
    def bytes_per_token(self) -> float | None:
        """What one token of context takes on one GPU, by the pool's own numbers."""
        size, tokens = self.number("pool_bytes"), self.number("pool_tokens")
        return size / tokens if size and tokens else None

    @property
    def expandable(self) -> bool:
        """Whether the allocator's segments are expandable already, as far as is known."""
        variables = dict(self.configuration.environment) if self.configuration is not None else {}
        return any("expandable_segments:True" in value for value in variables.values())

    @property
    def _pool_by_variable(self) -> bool:
        """vLLM on CPUs takes its pool's size from the environment."""
        return any("GiB for KV cache on node" in seen.source.text for seen in self.start.observations)

    @property
    def gpus(self) -> int | None:
        """GPUs that the model is split over."""
        stated = self.number("tensor_parallel")
        if self.configuration is not None and self.configuration.parallel.tensor > 1:
            return self.configuration.parallel.tensor
        return int(stated) if stated is not None else None

    def change(self, knob: Knob, direction: Direction, value: str | None = None) -> Change | None:
        """Where to move a knob, in the engine's own words; None where the engine has no such knob."""
        flag = FLAGS[self.engine].get(knob)
        if knob == "fraction" and self.engine == "vllm" and self._pool_by_variable:
            flag = "VLLM_CPU_KVCACHE_SPACE"
        return Change(flag=flag, direction=direction, value=value) if flag is not None else None


def once(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Each quoted line once."""
    return tuple({(seen.source.place, seen.source.line, seen.source.text): seen for seen in observations}.values())


def gib(value: float) -> str:
    """Bytes for a sentence."""
    return f"{value / GIB:.2f} GiB" if abs(value) >= GIB else f"{value / MIB:.0f} MiB"


def as_evidence(sign: Sign) -> Observation:
    """A sign as an observation."""
    return Observation(quantity=sign.name, value=sign.source.text, unit="text", source=sign.source, phase=sign.phase)
