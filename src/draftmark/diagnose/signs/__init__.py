"""Lines that tell of trouble, by what they are a sign of. Wording as engines, drivers, NCCL and the kernel write it.

Read in the wheels of SGLang 0.4.6.post5, 0.5.15.post1 and 0.5.23, of vLLM 0.6.6.post1, 0.8.5, 0.10.2, 0.11.2 and
0.32.0, of Ray 2.49.2, PyTorch 2.13.0 and Triton 3.9.0; what NCCL and the kernel say is from real logs.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from draftmark.diagnose.signs import around, deaths, host, lookalikes, serving, sizing, system
from draftmark.diagnose.signs.pattern import Pattern
from draftmark.observation import Phase, Source


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """One line that matched, in which phase, and the numbers in it."""

    name: str
    source: Source
    phase: Phase
    values: dict[str, str]

    def number(self, name: str) -> float | None:
        """A value as a number; None where the line does not have it."""
        text = self.values.get(name)
        return float(text.replace(",", "")) if text else None


def first_stated(signs: Iterable[Sign], *names: str) -> str | None:
    """The first value of these names that any of the lines has; None where none has one."""
    return next((sign.values[name] for sign in signs for name in names if name in sign.values), None)


PATTERNS: Final[tuple[Pattern, ...]] = (
    *sizing.PATTERNS,
    *serving.PATTERNS,
    *host.PATTERNS,
    *lookalikes.PATTERNS,
    *deaths.PATTERNS,
    *around.PATTERNS,
    *system.PATTERNS,
)
_COMPILED: Final = tuple((name, texts, re.compile(pattern)) for name, texts, pattern in PATTERNS)
TEXTS: Final = tuple({text: None for _, texts, _ in PATTERNS for text in texts})
"""Every text that a sign needs."""
_ANY: Final = re.compile("|".join(map(re.escape, TEXTS)))


def read(line: str) -> list[tuple[str, dict[str, str]]]:
    """Everything that one line is a sign of, with the values that it states."""
    if _ANY.search(line) is None:
        return []
    return [
        (name, {key: value for key, value in found.groupdict().items() if value is not None})
        for name, texts, pattern in _COMPILED
        if any(text in line for text in texts) and (found := pattern.search(line))
    ]
