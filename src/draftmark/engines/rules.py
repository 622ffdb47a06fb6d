"""Log lines as tables: a rule is a regular expression whose group names say what was read, and in which unit.

A group `free_gib` gives the quantity `free` in bytes; groups that differ only by a final digit (`pool_bytes1_gib`,
`pool_bytes2_gib`) are added up.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from draftmark.observation import Observation, Phase, Source, Unit
from draftmark.units import GIB, MIB

_UNITS: Final[dict[str, tuple[Unit, int]]] = {
    "gib": ("bytes", GIB),
    "mib": ("bytes", MIB),
    "bytes": ("bytes", 1),
    "tokens": ("tokens", 1),
    "blocks": ("blocks", 1),
    "requests": ("requests", 1),
    "s": ("seconds", 1),
    "ratio": ("ratio", 1),
    "text": ("text", 1),
}
KEPT_TEXT: Final = 2000
"""Characters of a line that an observation keeps as its source."""

_SIZE: Final = re.compile(r"\d ?(?:GB|GiB|MB|MiB)\b(?!/s)|avail[ _]mem|mem usage", re.IGNORECASE)


class Rule(msgspec.Struct, frozen=True):
    """A line that the engine writes, and what it states."""

    pattern: re.Pattern[str]
    phase: Phase | None = None
    """The phase that the line belongs to; None where it tells nothing of that."""
    then: Phase | None = None
    """The phase that begins after it; None where the same goes on."""


def rule(pattern: str, phase: Phase | None = None, then: Phase | None = None) -> Rule:
    """A rule from its regular expression."""
    return Rule(re.compile(pattern), phase, then)


def match(rules: Iterable[Rule], line: str) -> tuple[Rule, re.Match[str]] | None:
    """The first rule that fits, with its match."""
    for one in rules:
        if found := one.pattern.search(line):
            return one, found
    return None


def quantities(found: re.Match[str]) -> dict[str, tuple[float | int | str, Unit]]:
    """What a match states, in base units."""
    stated: dict[str, tuple[float | int | str, Unit]] = {}
    for name, text in found.groupdict().items():
        if text is None:
            continue
        quantity, _, suffix = name.rpartition("_")
        quantity = quantity.rstrip("0123456789")
        unit, scale = _UNITS[suffix]
        value = _value(text, unit, scale)
        before = stated.get(quantity)
        if before is not None and not isinstance(before[0], str) and not isinstance(value, str):
            value += before[0]
        stated[quantity] = (value, unit)
    return stated


def observe(
    stated: dict[str, tuple[float | int | str, Unit]], source: Source, rank: int | None, phase: Phase
) -> tuple[Observation, ...]:
    """The same as observations."""
    return tuple(
        Observation(quantity=quantity, value=value, unit=unit, source=source, rank=rank, phase=phase)
        for quantity, (value, unit) in stated.items()
    )


def speaks_of_memory(line: str) -> bool:
    """Whether a line states an amount of memory: one that no rule knows is reported. Errors are told by diagnose."""
    return bool(_SIZE.search(line)) and "out of memory" not in line


def as_unit(text: str, unit: Unit) -> float | int | str:
    """A word of a log in the base unit that it is already in."""
    return _value(text, unit, 1)


def _value(text: str, unit: Unit, scale: int) -> float | int | str:
    if unit == "text":
        return text
    number = float(text.replace(",", ""))
    return number if unit in {"seconds", "ratio"} else round(number * scale)
