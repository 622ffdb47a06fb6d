"""The embedded engine's log: each phase ends with one line of `name=value` facts in base units."""

import re
from typing import Final, get_args

from draftmark.observation import Observation, Phase, Source, Unit

LINE: Final = re.compile(r"^\S+ \S+ (?:INFO|ERROR) draftmark\.embedded: (?P<message>.*)$")
FACT: Final = re.compile(r"(\w+)=('[^']*'|\S+)")
FAILED: Final = re.compile(r"the engine failed in phase=(\S+)")

STATED: Final[dict[str, dict[str, tuple[str, Unit]]]] = {
    "start": {
        "engine": ("start", "text"),
        "version": ("version", "text"),
        "model": ("model", "text"),
        "device": ("device", "text"),
    },
    "init": {"capacity": ("capacity", "bytes"), "free_at_init": ("free", "bytes")},
    "weights": {"bytes": ("weights", "bytes"), "dtype": ("dtype", "text"), "free": ("free", "bytes")},
    "pool": {
        "tokens": ("pool_tokens", "tokens"),
        "bytes": ("pool_bytes", "bytes"),
        "bytes_per_token": ("bytes_per_token", "bytes"),
        "page": ("page", "tokens"),
        "kv_dtype": ("kv_dtype", "text"),
        "free": ("free", "bytes"),
    },
    "warm-up": {"activations": ("activations", "bytes"), "free": ("free", "bytes")},
    "ready": {
        "context": ("context_length", "tokens"),
        "chunk": ("chunk", "tokens"),
        "max_running": ("max_running", "requests"),
        "mem_fraction": ("memory_fraction", "ratio"),
        "free": ("free", "bytes"),
    },
}
"""What the line that ends each phase says: field -> quantity and unit."""
ELAPSED: Final[tuple[str, Unit]] = ("elapsed", "seconds")
NEXT: Final[dict[str, Phase]] = {
    "start": "init",
    "init": "weights",
    "weights": "pool",
    "pool": "warm-up",
    "warm-up": "warm-up",
    "ready": "ready",
    "stopping": "stopping",
}
"""The phase that begins where a line ends one."""


class Reader:
    """Reads the engine's log; an allocation that failed is read as torch words it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._phase: Phase = "unknown"

    @property
    def phase(self) -> Phase:
        """Where the engine is by the lines read so far."""
        return self._phase

    def feed(self, line: str, number: int) -> tuple[Observation, ...]:
        """What one line states."""
        match = LINE.match(line)
        if match is None:
            return ()
        message = match["message"]
        if failed := FAILED.match(message):
            self._phase = _phase(failed[1])
            return ()
        facts = {name: value.strip("'") for name, value in FACT.findall(message)}
        ended = "start" if message.startswith("start ") else facts.get("phase", "")
        if ended not in NEXT:
            return ()
        about: Phase = "init" if ended == "start" else _phase(ended)
        self._phase = NEXT[ended]
        source = Source(place=self._place, line=number, text=line)
        wanted = {**STATED.get(ended, {}), "elapsed": ELAPSED}
        return tuple(
            Observation(
                quantity=quantity, value=_value(facts[name], unit), unit=unit, source=source, rank=0, phase=about
            )
            for name, (quantity, unit) in wanted.items()
            if name in facts
        )


def _phase(name: str) -> Phase:
    known: tuple[Phase, ...] = get_args(Phase)
    return next((phase for phase in known if phase == name), "unknown")


def _value(text: str, unit: Unit) -> float | int | str:
    if unit == "text":
        return text
    return float(text) if unit in {"seconds", "ratio"} else int(text)
