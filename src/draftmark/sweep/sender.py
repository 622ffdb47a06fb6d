"""Batches against one server, with everything around them that tells whether their times are to be trusted."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from draftmark.engines.metrics import Counters, counters
from draftmark.sample import Mode, Sample
from draftmark.sweep.batch import Request, send
from draftmark.sweep.overhead import Lateness
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.server import Server
from draftmark.sweep.watch import Patience, Watch
from draftmark.units import Seconds, Tokens

SETTLE: Final = 0.05
"""Seconds that a server has to count a finished request before its counters are read."""

LOOKS: Final = 10
"""Further looks at a port after a failure: a dying process closes its connections first."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Requests sent together; what the server counted meanwhile, and how late this client's event loop was."""

    samples: tuple[Sample, ...]
    counted: Counters | None = None
    late: Seconds | None = None
    restarted: bool = False


class Sender:
    """Sends batches of one mode and output; seeds are `seed` + 1, 2, and so on."""

    def __init__(
        self, server: Server, *, mode: Mode, output: Tokens, seed: int, gap: float, alive: Callable[[], bool] | None
    ) -> None:
        self._server, self._mode, self._output = server, mode, output
        self._seed, self._gap, self._alive = seed, gap, alive
        self._last = counters(server.http, server.state.url)
        """Counters as last read; None where the server has none."""

    async def batch(self, prompts: tuple[Prompt, ...], *, patience: float, due: tuple[float, ...] = ()) -> Batch:
        """Send prompts together, or each when it is due, and wait for all. `patience` is for each first token."""
        watch = Watch(self._server.target, Patience(first=patience, gap=self._gap), self._alive)
        if self._mode == "cold":
            self._server.flush()
        requests = tuple(
            Request(prompt=prompt, seed=self._next_seed(), due=due[index] if due else 0.0)
            for index, prompt in enumerate(prompts)
        )
        before, restarted = self._since_last_batch()
        lateness = Lateness()
        ticking = asyncio.create_task(lateness.run())
        try:
            samples = await send(self._server.client, self._server.dialect, requests, output=self._output, watch=watch)
        finally:
            ticking.cancel()
        if any(sample.error for sample in samples):
            return Batch(samples=await self._explained(samples, watch), late=lateness.usual)
        counted = await self._since(before)
        restarted = restarted or self._server.restarted() or (counted is not None and counted.went_back)
        return Batch(samples=samples, counted=counted, late=lateness.usual, restarted=restarted)

    def _next_seed(self) -> int:
        self._seed = (self._seed + 1) % 2**31
        return self._seed

    def _since_last_batch(self) -> tuple[Counters | None, bool]:
        """Counters now, and whether they went back since the last batch, as those of another process do."""
        if self._last is None:
            return None, False
        now = counters(self._server.http, self._server.state.url)
        return now, now is not None and now.since(self._last).went_back

    async def _since(self, before: Counters | None) -> Counters | None:
        if before is None:
            return None
        await asyncio.sleep(SETTLE)
        now = counters(self._server.http, self._server.state.url)
        self._last = now or self._last
        return None if now is None else now.since(before)

    async def _explained(self, samples: tuple[Sample, ...], watch: Watch) -> tuple[Sample, ...]:
        """Errors with whether the server is still there."""
        dead = await watch.dead()
        for _ in range(LOOKS):
            if dead is not None:
                break
            await asyncio.sleep(SETTLE)
            dead = await watch.dead()
        if dead is None:
            return samples
        return tuple(
            sample
            if sample.error is None or sample.error.startswith("dead: ")
            else msgspec.structs.replace(sample, error=f"{dead} ({sample.error})")
            for sample in samples
        )
