"""What a sweep is asked to do, what it tells meanwhile, and what it brings."""

import re
from pathlib import Path
from typing import Literal

import msgspec

from draftmark.observation import ServerState
from draftmark.sample import Mode, Point
from draftmark.sweep.corpus import Content
from draftmark.sweep.dialect import Dialect
from draftmark.sweep.fit import Refusal
from draftmark.sweep.found import LATER
from draftmark.sweep.overhead import Overhead
from draftmark.units import Seconds, Tokens


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured at each depth, and how long it may take."""

    output: Tokens = Tokens(32)
    concurrency: tuple[int, ...] = (1,)
    rates: tuple[float, ...] = ()
    """Requests a second that come whether or not others have ended; where given, concurrency is not swept."""
    requests: int = 20
    """Requests at each rate."""
    mode: Mode = "cold"
    api: Literal["auto", "completions", "chat"] = "auto"
    model: str | None = None
    content: Content = "code"
    texts: tuple[Path, ...] = ()
    tokenizer: Path | None = None
    seed: int | None = None
    """Drawn where None. With the same seed a server's prefix cache may still hold the last run's prompts."""
    warm_up: int = 1
    repeats: int = 3
    most_repeats: int = 10
    precision: float = 0.02
    """Half-width of the step time's interval, as a share of it, at which repeats end."""
    point_seconds: float = 600.0
    """No further repeat begins at a depth after this long."""
    first_patience: float = 900.0
    """Seconds that the first depth's first token may take; later ones are judged by the depths before."""
    stall: float = 60.0
    """Seconds that a stream which has begun may pause."""
    sanity: bool = False
    """Ask for a planted fact at each depth and look at what comes."""
    api_key: str | None = None
    insecure: bool = False


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """The server is asked something before anything is measured, and has so many seconds to answer."""

    what: str
    seconds: float


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The server is known; nothing was measured yet."""

    state: ServerState
    dialect: Dialect
    counter: str
    sends_ids: bool
    seed: int
    refusals: tuple[Refusal, ...]
    overhead: Overhead


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """Requests go out; `predicted` seconds until the first token, where shorter depths tell.

    Under a rate, `requests` of them become due over `lasts` seconds.
    """

    asked: Tokens
    concurrency: int
    rate: float | None
    repeat: int
    predicted: Seconds | None
    requests: int = 1
    lasts: Seconds | None = None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A point has more samples, and the sink has them."""

    point: Point


Event = Asking | Started | Sending | Kept


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep brought. `stopped` says why it ended before the last depth; None when it did not."""

    state: ServerState
    dialect: Dialect
    seed: int
    overhead: Overhead
    points: tuple[Point, ...]
    refusals: tuple[Refusal, ...]
    stopped: str | None = None

    @property
    def refused(self) -> bool:
        """It ended because the server would not take a request as it was asked (4xx, but for those that say: later)."""
        status = re.match(r"(4\d\d): ", self.stopped or "")
        return status is not None and int(status[1]) not in LATER

    @property
    def valid(self) -> tuple[Point, ...]:
        """Points that may be used."""
        return tuple(point for point in self.points if point.invalid is None)
