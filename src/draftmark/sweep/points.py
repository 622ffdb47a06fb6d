"""Measuring: one depth after the other, each repeated until its interval is narrow enough."""

import random
import time
from collections.abc import Callable
from typing import Final

import httpx
import msgspec

from draftmark.physics.figures import figures
from draftmark.sample import Point, Sample
from draftmark.sweep import sanity
from draftmark.sweep.corpus import Corpus
from draftmark.sweep.fit import Refusal, predicted_prefill, refusal
from draftmark.sweep.judge import RESTARTED, Judge
from draftmark.sweep.options import Event, Kept, Options, Sending, Started, Sweep
from draftmark.sweep.overhead import Overhead
from draftmark.sweep.prompts import Prompt, PromptMaker
from draftmark.sweep.sender import Batch, Sender
from draftmark.sweep.server import Server, silence
from draftmark.units import Seconds, Tokens

CORRECTIONS: Final = 2
"""Times that a text is recut. One does unless the cut falls where the tokenizer joins over more than a line."""
TIMES_PREDICTED: Final = 3.0
LEAST_PATIENCE: Final = 30.0
"""Seconds: a first token is waited for three times as long as predicted, and this long at least."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured together: a depth, and how many requests come at once or a second."""

    depth: int
    concurrency: int
    rate: float | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Points to measure, in order, and depths that are not sent."""

    cells: tuple[Cell, ...]
    refusals: tuple[Refusal, ...]

    @property
    def deepest(self) -> int:
        """Tokens of the longest prompt that is sent."""
        return max(cell.depth for cell in self.cells)


def plan(server: Server, depths: tuple[int, ...], options: Options) -> Plan:
    """Fewer requests at once (or a second) before more, and shorter depths before longer, without what cannot fit."""
    loads: list[tuple[int, float | None]] = [(concurrency, None) for concurrency in sorted(set(options.concurrency))]
    if options.rates:
        loads = [(1, rate) for rate in sorted(set(options.rates))]
    cells, refusals = [], []
    for concurrency, rate in loads:
        for depth in depths:
            refused = refusal(server.state, depth, output=options.output, concurrency=concurrency)
            if refused is None:
                cells.append(Cell(depth=depth, concurrency=concurrency, rate=rate))
            else:
                refusals.append(refused)
    return Plan(cells=tuple(cells), refusals=tuple(refusals))


class Measurement:
    """One sweep of one server."""

    def __init__(
        self,
        server: Server,
        options: Options,
        plan: Plan,
        corpus: Corpus,
        overhead: Overhead,
        *,
        density: float | None,
        seed: int,
        sink: Callable[[Point], None],
        on_event: Callable[[Event], None],
        alive: Callable[[], bool] | None,
    ) -> None:
        self._server, self._options, self._plan, self._corpus = server, options, plan, corpus
        self._overhead, self._seed = overhead, seed
        self._sink, self._tell = sink, on_event
        self._judge = Judge(dialect=server.dialect, mode=options.mode, chunk_cost=overhead.chunk)
        self._sender = Sender(
            server, mode=options.mode, output=options.output, seed=seed, gap=options.stall, alive=alive
        )
        self._maker = PromptMaker(
            corpus,
            server.counter,
            send_ids=server.dialect.token_ids,
            overhead=server.dialect.overhead,
            density=density,
            seed=seed,
        )
        self._documents: list[Prompt] = []
        self._prefills: list[tuple[int, float]] = []
        self._first_sanity: sanity.Sanity | None = None
        self._asked: set[int] = set()
        self._warmed = options.warm_up == 0

    async def run(self, finished: tuple[Point, ...]) -> Sweep:
        """Every point of the plan; ends early when the server is lost."""
        self._tell(self._started())
        kept = {_key(point): point for point in finished if point.invalid is None and not point.open}
        points: list[Point] = []
        for cell in self._plan.cells:
            try:
                point = kept.get(_cell_key(cell, self._options)) or await self._point(cell)
            except httpx.HTTPError as problem:
                kind = "hang" if isinstance(problem, httpx.TimeoutException) else "dead"
                return self._result(points, f"{kind}: {silence(problem)}")
            points.append(point)
            self._learn(point)
            lost = next((sample.error for sample in point.samples if sample.error), None)
            if lost is not None or point.invalid == RESTARTED:
                return self._result(points, lost or RESTARTED)
        return self._result(points, None)

    async def _point(self, cell: Cell) -> Point:
        """Batches of one cell until the interval is narrow, an error ends it, or its time is up."""
        began = time.monotonic()
        samples = await self._warm_up(cell.depth)
        batches: tuple[Batch, ...] = ()
        while True:
            more, batch = await self._batch(cell, repeat=len(batches) + 1)
            samples += more
            batches += (batch,)
            point = self._judged(cell, samples, batches)
            if point.invalid is not None or self._enough(point, len(batches), time.monotonic() - began):
                point = self._sane(point)
                self._keep(point)
                return point
            self._keep(msgspec.structs.replace(point, open=True))

    def _sane(self, point: Point) -> Point:
        """With what is said of the output at this depth, where that was asked for: once a depth, at its first load."""
        if not self._options.sanity or point.invalid is not None or point.asked in self._asked:
            return point
        self._asked.add(point.asked)
        patience = self._patience(point.asked)
        seen = sanity.ask(self._server, self._maker, point.asked, seed=self._seed, patience=patience)
        self._first_sanity = self._first_sanity or seen
        said = sanity.flag(seen, self._first_sanity)
        return msgspec.structs.replace(point, flags=(*point.flags, said)) if said else point

    def _keep(self, point: Point) -> None:
        self._sink(point)
        self._tell(Kept(point=point))

    async def _warm_up(self, depth: int) -> tuple[Sample, ...]:
        """Requests before the first depth, while a server may still compile or fill its caches."""
        samples: tuple[Sample, ...] = ()
        while not self._warmed:
            batch = await self._sender.batch((self._maker.make(depth),), patience=self._options.first_patience)
            samples += _as_warm_up(batch.samples)
            self._warmed = len(samples) >= self._options.warm_up or any(sample.error for sample in samples)
        return samples

    async def _batch(self, cell: Cell, *, repeat: int) -> tuple[tuple[Sample, ...], Batch]:
        """One batch and all samples; where the server counted a text otherwise than asked, it is recut and sent again.

        What was sent before is kept as warm-up: its tokens are not those asked for.
        """
        work = cell.depth * cell.concurrency
        due = self._due(cell)
        self._tell(
            Sending(
                asked=Tokens(cell.depth),
                concurrency=cell.concurrency,
                rate=cell.rate,
                repeat=repeat,
                predicted=predicted_prefill(tuple(self._prefills), work),
                requests=max(cell.concurrency, len(due)),
                lasts=Seconds(due[-1]) if due else None,
            )
        )
        prompts = self._prompts(cell.depth, max(cell.concurrency, len(due)))
        patience = self._patience(work) * (len(due) or 1)
        batch = await self._sender.batch(prompts, patience=patience, due=due)
        discarded: tuple[Sample, ...] = ()
        for _ in range(CORRECTIONS):
            counts = [sample.prompt_tokens for sample in batch.samples]
            right = all(count in {None, cell.depth} for count in counts)
            if right or self._maker.sends_ids or any(sample.error for sample in batch.samples):
                break
            discarded += _as_warm_up(batch.samples)
            prompts = self._corrected(prompts, counts, cell.depth)
            batch = await self._sender.batch(prompts, patience=patience, due=due)
        return discarded + batch.samples, batch

    def _corrected(self, prompts: tuple[Prompt, ...], counts: list[Tokens | None], depth: int) -> tuple[Prompt, ...]:
        cold = self._options.mode == "cold"
        return tuple(
            prompt if count is None else self._maker.correct(prompt, asked=depth, counted=count, fresh=cold)
            for prompt, count in zip(prompts, counts, strict=True)
        )

    def _due(self, cell: Cell) -> tuple[float, ...]:
        """Moments of a Poisson process at the cell's rate, fixed beforehand; none where requests go together."""
        if cell.rate is None:
            return ()
        order = random.Random(self._seed + cell.depth)
        moments = [0.0]
        while len(moments) < self._options.requests:
            moments.append(moments[-1] + order.expovariate(cell.rate))
        return tuple(moments)

    def _patience(self, tokens: int) -> float:
        """Seconds that a first token behind so many prompt tokens may take."""
        predicted = predicted_prefill(tuple(self._prefills), tokens)
        if predicted is None:
            return self._options.first_patience
        return max(TIMES_PREDICTED * predicted, LEAST_PATIENCE)

    def _prompts(self, depth: int, count: int) -> tuple[Prompt, ...]:
        """New prompts; in warm mode the beginnings of documents that serve all depths, one a stream."""
        if self._options.mode == "cold":
            return tuple(self._maker.make(depth) for _ in range(count))
        while len(self._documents) < count:
            self._documents.append(self._maker.make(self._plan.deepest))
        return tuple(self._maker.shorten(document, depth) for document in self._documents[:count])

    def _judged(self, cell: Cell, samples: tuple[Sample, ...], batches: tuple[Batch, ...]) -> Point:
        point = Point(
            asked=Tokens(cell.depth),
            output=self._options.output,
            concurrency=cell.concurrency,
            rate=cell.rate,
            samples=samples,
            mode=self._options.mode,
            content=self._corpus.content,
        )
        return msgspec.structs.replace(
            point, invalid=self._judge.invalid(point, batches), flags=self._judge.flags(point, batches)
        )

    def _enough(self, point: Point, repeats: int, spent: float) -> bool:
        if point.rate is not None or repeats >= self._options.most_repeats or spent >= self._options.point_seconds:
            return True
        if repeats < self._options.repeats:
            return False
        steps = figures(point).step_time
        return steps is not None and steps.half_width is not None and steps.half_width <= self._options.precision

    def _learn(self, point: Point) -> None:
        """Prefills of known length tell how long longer ones will take."""
        ttft = figures(point).ttft
        if point.invalid is None and point.rate is None and ttft is not None and self._options.mode == "cold":
            self._prefills.append((point.asked * point.concurrency, ttft.value))

    def _started(self) -> Started:
        server = self._server
        return Started(
            state=server.state,
            dialect=server.dialect,
            counter=server.counter.name,
            sends_ids=self._maker.sends_ids,
            seed=self._seed,
            refusals=self._plan.refusals,
            overhead=self._overhead,
        )

    def _result(self, points: list[Point], stopped: str | None) -> Sweep:
        return Sweep(
            state=self._server.state,
            dialect=self._server.dialect,
            seed=self._seed,
            overhead=self._overhead,
            points=tuple(points),
            refusals=self._plan.refusals,
            stopped=stopped,
        )


def _as_warm_up(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    return tuple(msgspec.structs.replace(sample, warm_up=True) for sample in samples)


def _key(point: Point) -> tuple[object, ...]:
    return point.asked, point.output, point.concurrency, point.rate, point.mode


def _cell_key(cell: Cell, options: Options) -> tuple[object, ...]:
    return cell.depth, options.output, cell.concurrency, cell.rate, options.mode
