"""Flags and environment variables that a log shows to be set: the engines' own lists, and commands beside them."""

import re
import shlex
from typing import Final

from draftmark.engines.listed import logged
from draftmark.engines.words import split

_LISTS: Final = ("server_args=", "args: {", "args: Namespace(", " with config: ")
"""Before the arguments as the engine lists them: SGLang's all, vLLM's that differ (all up to 0.8), vLLM's engine's."""
_LAUNCH: Final = re.compile(
    r"(?:\bsglang\.launch_server|\bvllm\.entrypoints\.openai\.api_server|\b(?:vllm|sglang) serve"
    r"|\bdraftmark\.embedded)\b(?P<words>.* --[a-z].*)"
)
_OBJECTS: Final = ("--compilation-config", "--speculative-config")
_VARIABLES: Final = (
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "MAX_JOBS", "NCCL_DEBUG", "MASTER_PORT",
    "VLLM_PORT", "VLLM_DP_MASTER_PORT", "SGLANG_HEALTH_CHECK_TIMEOUT", "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "RAY_memory_usage_threshold", "CUDA_LAUNCH_BLOCKING", "PYTHONFAULTHANDLER", "VLLM_CPU_KVCACHE_SPACE",
)  # fmt: skip
"""Variables that a remedy may set; any other is passed over."""
_ASSIGNED: Final = re.compile(rf"(?<![\w$])({'|'.join(_VARIABLES)})['\"]?\s?[=:]\s?['\"]?([\w./][\w./:,\[\]-]*)")
_ADVICE: Final = ("try setting", "Tried to allocate", "onsider", "ecommend", "ncompatible")
"""A line with any of these speaks of a variable and does not set it."""
_HINTS: Final = (*_LISTS, "launch_server", "api_server", "vllm serve", "sglang serve", "embedded", *_VARIABLES)
"""A line without any of these sets nothing."""
_OFTEN: Final = re.compile("|".join(map(re.escape, _HINTS)))


def listed(line: str) -> bool:
    """Whether an engine itself lists its arguments on this line."""
    return any(mark in line for mark in _LISTS)


class Settings:
    """What one start was asked to run with, as far as its log shows it."""

    def __init__(self) -> None:
        self.flags: dict[str, tuple[str, ...]] = {}
        """Values by flag, as the engine spells it; none for a switch."""
        self.variables: dict[str, str] = {}

    def read(self, line: str) -> None:
        """Learn what a line sets; what an engine lists later replaces what a command asked for."""
        if _OFTEN.search(line) is None:
            return
        mark = next((mark for mark in _LISTS if mark in line), None)
        if mark is not None:
            self.give(logged(line.partition(mark.rstrip("{"))[2]))
            return
        if launch := _LAUNCH.search(line):
            self.give(_split(launch["words"]))
        if not any(words in line for words in _ADVICE):
            self.variables |= {name: value.rstrip(".,:") for name, value in _ASSIGNED.findall(line)}

    def give(self, argv: tuple[str, ...]) -> None:
        """Learn from arguments; what vLLM takes as a JSON object counts like flags of its own."""
        found = {given.name: given.values for given in split(argv) if given.name}
        self.flags |= found
        for name in _OBJECTS:
            for value in found.get(name, ()):
                self.flags |= {given.name: given.values for given in split(logged(value))}

    def word(self, *names: str) -> str | None:
        """The value of the first of these flags that has one."""
        return next((self.flags[name][0] for name in names if self.flags.get(name)), None)

    def number(self, *names: str) -> float | None:
        """The same as a number; None where it is none."""
        for name in names:
            try:
                return float(self.flags[name][0])
            except (KeyError, IndexError, ValueError):
                continue
        return None

    def on(self, *names: str) -> bool:
        """Whether any of these switches is set."""
        return any(name in self.flags for name in names)


def _split(words: str) -> tuple[str, ...]:
    """A command as a shell splits it, up to where it is piped or redirected; as it stands where quotes do not match."""
    command = re.split(r"\s(?:\||&&|;|[12]?>)", words.rstrip(" \\"), maxsplit=1)[0]
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())
