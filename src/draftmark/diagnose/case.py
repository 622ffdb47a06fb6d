"""One start that went wrong, as the rules see it: what is known of its settings and memory, and the engine's flags."""

import math
import re
from collections.abc import Iterable
from typing import Final

from draftmark.configuration import Configuration, EngineName
from draftmark.diagnose.knobs import ALLOCATOR, ALSO, DECODE_GRAPHS, FLAGS, LEAST, PREFILL_GRAPHS, VLLM_GRAPHS, Knob
from draftmark.diagnose.log import Failure, Start
from draftmark.diagnose.settings import Settings
from draftmark.diagnose.signs import Sign
from draftmark.engines import allocator, known, offered
from draftmark.engines.versions import parse_version
from draftmark.errors import BadInput
from draftmark.finding import Change, Direction
from draftmark.observation import Observation
from draftmark.units import GIB, MIB, Bytes

_CONSEQUENCES: Final = (
    "root cause above", "stack trace above", "error messages above", "EngineDeadError", "Executor failed",
    "Engine core initialization failed", "scheduler died during initialization", "died with exit code",
    "died unexpectedly", "EOFError", "BrokenPipeError", "ConnectionResetError", "Connection closed by peer",
    "CancelledError", "other ranks that didn't finish loading",
)  # fmt: skip
"""Exceptions by which the other processes report that one has failed: the reason is another."""


_GRAPHS_BY_PHASE: Final = ("--disable-decode-cuda-graph", "--no-disable-decode-cuda-graph", DECODE_GRAPHS)
"""Any of them is listed by an SGLang that has graphs of prefill and of decode steps."""

_NUMBERED: Final = re.compile(r"v?(?!0\.[01]\.)\d+\.\d")
"""A version that says something: not `dev`, nor what a build from a clone without tags is called (`0.1.dev1+g...`)."""
_CUTS_PROMPTS: Final = (0, 8)
"""The vLLM since which prompts are cut unless told otherwise."""


class Case:
    """One start with what is known of it."""

    def __init__(self, start: Start, configuration: Configuration | None) -> None:
        self.start = start
        self.configuration = configuration
        self.engine: EngineName | None = configuration.engine if configuration is not None else start.engine
        self.settings = _settings(start, configuration)

    def signs(self, *names: str) -> list[Sign]:
        """All signs of these names, in the order of the log."""
        found = [sign for name in names for sign in self.start.signs.get(name, [])]
        return sorted(found, key=lambda sign: sign.source.line or 0)

    @property
    def failure(self) -> Failure | None:
        """The first allocation that failed: what came after it is its consequence."""
        return self.start.failures[0] if self.start.failures else None

    @property
    def raised(self) -> bool:
        """Whether an exception that the server did not survive names a reason, and not only another process's end."""
        errors = [str(seen.value) for seen in self.start.last_errors]
        return any(not is_consequence(error) and "Fatal Python error" not in error for error in errors)

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
    def others(self) -> dict[int, Bytes]:
        """Bytes of the device that other processes held when the first allocation failed, by process id."""
        return allocator.others(self.failure.observations[0].source.text) if self.failure is not None else {}

    @property
    def allocator(self) -> str:
        """The variable that sets PyTorch's allocator, by the name that the allocator itself says."""
        said = self.failure.observations[0].source.text if self.failure is not None else ""
        return next((name for name in ALLOCATOR if name in said), ALLOCATOR[0])

    @property
    def fraction(self) -> float | None:
        """The engine's memory fraction, as given or as the log states it."""
        return self._set_to("fraction", "memory_fraction")

    @property
    def chunk(self) -> int | None:
        """Tokens of one prefill step; None where prompts are not cut as well."""
        chunk = self._set_to("chunk", "chunk")
        return int(chunk) if chunk is not None and chunk > 0 else None

    @property
    def whole_prompts(self) -> bool:
        """Whether prompts are not cut into chunks, as far as is known.

        vLLM's first engine cut them only where it was told to, or where it says so itself, for contexts beyond 32k
        (`create_engine_config`, 0.6.6.post1); a step must then hold the longest prompt.
        """
        chunk = self._set_to("chunk", "chunk")
        if self.engine == "vllm" and self.version is not None and parse_version(self.version) < _CUTS_PROMPTS:
            return self.seen("chunk") is None and not self.settings.on("--enable-chunked-prefill")
        return (chunk is not None and chunk <= 0) or self.settings.on("--no-enable-chunked-prefill")

    @property
    def requests(self) -> int | None:
        """Most requests at once."""
        requests = self._set_to("requests", "max_running")
        return int(requests) if requests is not None else None

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
    def explicit_pool(self) -> float | None:
        """The size that was given for the pool (vLLM: bytes, else tokens), where it decides and not the fraction.

        SGLang takes what the fraction gives where that is less.
        """
        given, made = self.given("pool"), self.number("pool_tokens")
        if given is None or (self.engine == "sglang" and made is not None and made < 0.99 * given):
            return None
        return given

    @property
    def on_cpu(self) -> bool | None:
        """Whether the engine computes on the CPU, so that the host's memory is its device's; None where not known."""
        device = self.seen("device")
        word = str(device.value) if device is not None else self.settings.word("--device-config", "--device")
        if word is not None and word != "auto":
            return word.startswith("cpu")
        if self._pool_by_variable or (self.configuration is not None and self.configuration.device == "cpu"):
            return True
        return False if self.engine == "sglang" or self.number("memory_fraction") is not None else None

    @property
    def _pool_by_variable(self) -> bool:
        """vLLM on CPUs takes its pool's size from the environment."""
        return any("GiB for KV cache on node" in seen.source.text for seen in self.start.observations)

    @property
    def gpus(self) -> int | None:
        """GPUs that the model is split over."""
        gpus = self._set_to("gpus", "tensor_parallel")
        return int(gpus) if gpus is not None else None

    @property
    def graphs_off(self) -> bool:
        """Whether no graphs are captured, as far as is known."""
        if self.configuration is not None and not self.configuration.graphs:
            return True
        backend, mode = self.settings.word("--cuda-graph-backend-decode"), self.settings.word("--cudagraph-mode")
        switched = self.settings.on("--disable-cuda-graph", "--enforce-eager", "--disable-decode-cuda-graph")
        return switched or backend == "disabled" or "NONE" in (mode or "")

    @property
    def version(self) -> str | None:
        """The engine's version, as its log states it or as it is known beside the log; None for a build without one."""
        seen = self.seen("version")
        said = str(seen.value) if seen is not None else self.configuration.version if self.configuration else None
        return said if said is not None and _NUMBERED.match(said) else None

    @property
    def prefill_graphs(self) -> bool:
        """Whether the allocation failed while graphs of prefill steps were captured, and not those of decode steps."""
        place = self.failure.place if self.failure is not None else None
        said = any("prefill CUDA graph" in sign.source.text for sign in self.signs("graph capture failed"))
        return (
            said
            or bool(self.signs("prefill graphs failed"))
            or (place is not None and place.activity == "prefill graphs")
        )

    @property
    def captured(self) -> float | None:
        """Largest step that graphs were to be captured for: requests, or tokens of prefill steps."""
        given = self.settings.number(*ALSO.get(self._graphs or "", ()), self._graphs) if self._graphs else None
        return given if given is not None else self.number("captured")

    @property
    def _graphs(self) -> str | None:
        """The flag that bounds the captured steps, as this version of the engine has it."""
        if self.engine == "vllm":
            has = offered.options("vllm", self.version)
            return next(name for name in VLLM_GRAPHS if name in has)
        by_phase = self.engine == "sglang" and self.settings.on(*_GRAPHS_BY_PHASE)
        if by_phase or self.prefill_graphs:
            return PREFILL_GRAPHS if self.prefill_graphs else DECODE_GRAPHS
        return FLAGS[self.engine].get("graphs")

    def given(self, knob: Knob) -> float | None:
        """Where a knob is now, by the flags that are known."""
        flag = FLAGS[self.engine].get(knob)
        return self.settings.number(*ALSO.get(flag, ()), flag) if flag is not None else None

    def change(self, knob: Knob, direction: Direction, value: str | None = None) -> Change | None:
        """Where to move a knob, in the engine's own words; None where the engine has no such knob."""
        flag = FLAGS[self.engine].get(knob)
        if knob == "fraction" and self.engine == "vllm" and self._pool_by_variable:
            flag = "VLLM_CPU_KVCACHE_SPACE"
        if knob == "graphs":
            flag = self._graphs
        return Change(flag=flag, direction=direction, value=value) if flag is not None else None

    def is_so_already(self, change: Change) -> bool:
        """Whether a proposed change is made already, or cannot go further, by all that is known to be set."""
        if change.direction == "cannot help":
            return False
        if change.direction == "set":
            return self._is_set(change)
        if change.flag in {FLAGS[self.engine].get("graphs"), DECODE_GRAPHS, *VLLM_GRAPHS[:2]} and self.graphs_off:
            return True
        now, value = self._now(change.flag), _number(change.value)
        if now is None:
            return False
        if change.direction == "raise":
            return value is not None and value <= now
        return now <= LEAST.get(change.flag, -math.inf) or (value is not None and value >= now)

    def _is_set(self, change: Change) -> bool:
        names = ALLOCATOR if change.flag in ALLOCATOR else (change.flag,)
        values = [self.settings.variables.get(name) or self.settings.word(name) for name in names]
        if change.value is None:
            return any(self.settings.flags.get(name) == () for name in names)
        return any(change.value in value.split(",") for value in values if value is not None)

    def _now(self, flag: str) -> float | None:
        """The number that a flag or variable has now."""
        variable = self.settings.variables.get(flag)
        return _number(variable) if variable is not None else self.settings.number(*ALSO.get(flag, ()), flag)

    def _set_to(self, knob: Knob, quantity: str) -> float | None:
        """A knob by its flag, else by the engine's own words."""
        given = self.given(knob)
        return given if given is not None else self.number(quantity)


def is_consequence(error: str) -> bool:
    """Whether an exception only reports that another process has failed."""
    return any(words in error for words in _CONSEQUENCES)


def _settings(start: Start, configuration: Configuration | None) -> Settings:
    """What is set: as it was asked for, and over that what the log shows."""
    whole = Settings()
    if configuration is not None:
        whole.give(_asked(configuration))
        for invented in ("--host", "--port"):
            whole.flags.pop(invented, None)
        whole.variables |= dict(configuration.environment)
    whole.flags |= start.settings.flags
    whole.variables |= start.settings.variables
    return whole


def _asked(configuration: Configuration) -> tuple[str, ...]:
    """A configuration as its engine's arguments; only those given verbatim where it holds one that is not known."""
    try:
        return known.adapter(configuration.engine).command(configuration, python="", host="", port=0).argv
    except BadInput:
        return configuration.flags


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def once(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Each quoted line once."""
    return tuple({(seen.source.place, seen.source.line, seen.source.text): seen for seen in observations}.values())


def gib(value: float) -> str:
    """Bytes for a sentence."""
    return f"{value / GIB:.2f} GiB" if abs(value) >= GIB else f"{value / MIB:.0f} MiB"


def as_evidence(sign: Sign) -> Observation:
    """A sign as an observation."""
    return Observation(quantity=sign.name, value=sign.source.text, unit="text", source=sign.source, phase=sign.phase)
