"""One request and its answer as it comes, within bounds: a server that does not end is given up."""

import asyncio
import time
from typing import Final

import msgspec

LONGEST_LINE: Final = 2**20
"""Bytes without a line's end, in an answer or its head, after which it is given up: events are a few hundred."""
ROOM: Final = 2**22
"""Bytes that any answer may have, beside those for its tokens."""
TOKEN_ROOM: Final = 2**14
"""Further bytes for each token asked for."""
SPARE_EVENTS: Final = 64
"""Events beyond two a token asked for: roles, usage, the end."""
_EVENT: Final = b"data:"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much an answer may bring before it is given up."""

    bytes: int
    events: int

    @classmethod
    def of(cls, output: int) -> "Bounds":
        """For a stream of `output` tokens: several times what any server sends for it."""
        return cls(bytes=ROOM + TOKEN_ROOM * output, events=SPARE_EVENTS + 2 * output)


class Exchange:
    """One request and its answer so far. Times are of the monotonic clock; `failure` says why it did not end,
    `location` where a redirection points to.

    `events` are counted as they come, so that one with more than its bounds can be given up; `last` is when the last
    one came, as keep-alives are no sign that anything goes on.
    """

    __slots__ = (
        "bounds",
        "ended",
        "events",
        "failure",
        "finished",
        "last",
        "line",
        "location",
        "pieces",
        "sent",
        "size",
        "status",
    )

    def __init__(self, finished: asyncio.Future[None], bounds: Bounds) -> None:
        self.finished, self.bounds = finished, bounds
        self.line = self.size = self.events = 0
        self.sent = self.last = 0.0
        self.status: int | None = None
        self.location: str | None = None
        self.pieces: list[tuple[float, bytes]] = []
        self.ended: float | None = None
        self.failure: str | None = None

    @property
    def body(self) -> bytes:
        """All of the answer's body."""
        return b"".join(piece for _, piece in self.pieces)

    def add(self, at: float, body: bytes) -> str | None:
        """Keep a piece; why the answer must be given up, where it is out of bounds."""
        self.pieces.append((at, body))
        self.size += len(body)
        end = body.rfind(b"\n")
        self.line = self.line + len(body) if end < 0 else len(body) - end - 1
        events = body.count(_EVENT)
        if events:
            self.last = at
            self.events += events
        if self.line > LONGEST_LINE:
            return f"the server sent a line of more than {LONGEST_LINE:,} bytes: that is no stream of events"
        if self.events > self.bounds.events:
            return (
                f"the server does not end its stream: {self.events:,} events came, more than two for each token asked"
            )
        if self.size > self.bounds.bytes:
            return f"the server does not end its answer: {self.size:,} bytes came"
        return None


def abort(exchange: Exchange, why: str) -> None:
    """Give up on an exchange from outside: its `post` returns at once with this failure."""
    if not exchange.finished.done():
        exchange.failure = why
        exchange.ended = time.monotonic()
        exchange.finished.set_result(None)
