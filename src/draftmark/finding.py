"""A finding: a claim with the evidence that proves it and the remedy that follows."""

from typing import Literal

import msgspec

from draftmark.observation import Observation

Direction = Literal["raise", "lower", "set", "cannot help"]
Severity = Literal["fatal", "warning", "note"]
Confidence = Literal["certain", "likely", "possible"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A flag (or environment variable) and where to move it."""

    flag: str
    direction: Direction
    value: str | None = None


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """Changes made together, the arithmetic behind them, and what they cost (pool tokens, speed); cheapest first."""

    changes: tuple[Change, ...]
    arithmetic: str
    cost: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is stable and documented in docs/findings.md."""

    code: str
    severity: Severity
    confidence: Confidence
    claim: str
    evidence: tuple[Observation, ...]
    remedies: tuple[Remedy, ...] = ()
