"""What the client itself costs: seconds a chunk, measured before the server is."""

import asyncio
import time
from typing import Final

import msgspec

from draftmark.sweep.client import Connection
from draftmark.sweep.exchange import Bounds, Exchange
from draftmark.units import Seconds

CHUNKS: Final = 2000
TICK: Final = 0.02
"""Seconds between looks at the event loop's lateness. Its timers are good to a millisecond."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that this client takes to stamp one chunk of a stream, on this machine, now."""

    chunk: Seconds


async def measure_overhead() -> Overhead:
    """Feed a connection chunks that nobody sent, and time it."""
    connection = Connection()
    exchange = Exchange(asyncio.get_running_loop().create_future(), Bounds.of(CHUNKS))
    connection.exchange = exchange
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    event = b'data: {"choices":[{"index":0,"text":" tide"}],"usage":{"completion_tokens":1}}\n\n'
    chunk = b"%x\r\n%b\r\n" % (len(event), event)
    began = time.perf_counter()
    for _ in range(CHUNKS):
        connection.data_received(chunk)
    spent = time.perf_counter() - began
    assert len(exchange.pieces) == CHUNKS, "every chunk is stamped"
    return Overhead(chunk=Seconds(spent / CHUNKS))


class Lateness:
    """How late the event loop wakes while requests are under way: stamps are late by about as much."""

    def __init__(self) -> None:
        self._late: list[float] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due = time.monotonic() + TICK
            await asyncio.sleep(TICK)
            self._late.append(time.monotonic() - due)

    @property
    def usual(self) -> Seconds | None:
        """The ninth decile; None before anything was seen."""
        ordered = sorted(self._late)
        return Seconds(ordered[int(0.9 * (len(ordered) - 1))]) if ordered else None
