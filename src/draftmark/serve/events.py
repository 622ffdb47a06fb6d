"""What a start tells while it goes on."""

from collections.abc import Callable

import msgspec

from draftmark.observation import Observation, Phase
from draftmark.units import BytesPerSecond, Seconds


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The engine's process runs; its whole log goes to `log`."""

    argv: tuple[str, ...]
    pid: int
    created: float
    """Unix time of the process's creation, which tells it from a later one with its number."""
    launcher: tuple[str, ...]
    log: str
    url: str


class PhaseEntered(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """The engine entered a phase, `at` seconds after its start."""

    phase: Phase
    at: Seconds


class Activity(msgspec.Struct, frozen=True, kw_only=True, tag="activity"):
    """What the engine shows now; `remaining` is worked out from the progress so far, where a phase shows any."""

    phase: Phase
    text: str
    done: float | None = None
    """Share of the phase's work, 0 to 1."""
    remaining: Seconds | None = None
    rate: BytesPerSecond | None = None
    """Weights loaded a second on one rank, where their size was predicted."""


class Observed(msgspec.Struct, frozen=True, kw_only=True, tag="observed"):
    """A number that the engine stated."""

    observation: Observation


class Note(msgspec.Struct, frozen=True, kw_only=True, tag="note"):
    """Something that a user should know: one line."""

    text: str


Event = Started | PhaseEntered | Activity | Observed | Note
Progress = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Progress for nobody."""
