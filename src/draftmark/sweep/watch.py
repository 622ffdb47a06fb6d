"""Is the server still there? Death is noticed within seconds, a hang by a deadline worked out beforehand."""

import asyncio
import errno
import time
from collections.abc import Callable
from typing import Final

from draftmark.sweep.client import Client, Target
from draftmark.sweep.exchange import Exchange, abort

EVERY: Final = 1.0
"""Seconds between looks."""
CONNECT: Final = 1.5
"""Seconds that a connection may take to be accepted; the kernel accepts even for a busy process."""
MISSES: Final = 2
"""Looks in a row without an answer that count as death (a refused connection counts at once)."""


_OURS: Final = {errno.EMFILE, errno.ENFILE}
"""Errors of a look that say nothing of the server: this process, or its machine, may open no more files."""


class Patience:
    """How long an open request may be silent: before its first byte, and between later ones. Seconds."""

    def __init__(self, *, first: float, gap: float) -> None:
        self.first, self.gap = first, gap


class Watch:
    """Looks after open exchanges and ends those whose server is gone or hangs."""

    def __init__(self, target: Target, patience: Patience, alive: Callable[[], bool] | None = None) -> None:
        self._target, self._patience, self._alive = target, patience, alive
        self._open: list[Exchange] = []
        self._misses = 0

    def add(self, exchange: Exchange) -> None:
        """Look after one more exchange."""
        self._open.append(exchange)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self._open = [exchange for exchange in self._open if not exchange.finished.done()]
            if not self._open:
                continue
            dead = await self.dead()
            for exchange in self._open:
                why = dead or self._silent(exchange, time.monotonic())
                if why:
                    abort(exchange, why)

    def _silent(self, exchange: Exchange, now: float) -> str | None:
        """Keep-alives are no answer: the first event is waited for from the request on, later ones from the last."""
        limit = self._patience.gap if exchange.events else self._patience.first
        since = exchange.last if exchange.events else exchange.sent
        if exchange.sent and now - since > limit:
            what = "the stream stalled" if exchange.events else "no answer began"
            return f"hang: {what} for {now - since:.1f} s, where {limit:.1f} s were allowed"
        return None

    async def dead(self) -> str | None:
        """Why the server is taken for dead; None while it accepts connections."""
        if self._alive is not None and not self._alive():
            return "dead: the server's process has ended"
        try:
            async with asyncio.timeout(CONNECT):
                _, writer = await asyncio.open_connection(self._target.host, self._target.port)
        except ConnectionRefusedError:
            return "dead: the server no longer accepts connections"
        except OSError as problem:
            if problem.errno in _OURS:
                return None
            self._misses += 1
            return "dead: the server's host does not answer" if self._misses >= MISSES else None
        self._misses = 0
        writer.close()
        return None


async def post_watched(client: Client, path: str, body: bytes, *, output: int, patience: float) -> Exchange:
    """One request for `output` tokens, given up where its server dies or is silent for more than `patience` seconds."""
    watch = Watch(client.target, Patience(first=patience, gap=patience))
    watching = asyncio.create_task(watch.run())
    try:
        return await client.post(path, body, output=output, watch=watch.add)
    finally:
        watching.cancel()
