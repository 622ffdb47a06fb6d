"""Measuring: one depth after the other, each repeated until its interval is narrow enough."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from draftmark.physics.figures import figures
from draftmark.sample import Point, Sample
from draftmark.sweep.batch import Request, send
from draftmark.sweep.corpus import Corpus, file_corpus, python_corpus
from draftmark.sweep.fit import Refusal, predicted_prefill, refusal
from draftmark.sweep.judge import Judge
from draftmark.sweep.options import Event, Kept, Options, Sending, Started, Sweep
from draftmark.sweep.prompts import Prompt, PromptMaker
from draftmark.sweep.server import Server
from draftmark.sweep.watch import Patience, Watch
from draftmark.units import Seconds, Tokens

CHARACTERS_A_TOKEN: Final = 5
"""More than the texts take on average, so that they last for the deepest prompt."""
TIMES_PREDICTED: Final = 3.0
LEAST_PATIENCE: Final = 30.0
"""Seconds: a first token is waited for three times as long as predicted, and this long at least."""
GAP_PATIENCE: Final = 60.0
"""Seconds that a stream may pause."""


class Measurement:
    """One sweep of one server."""

    def __init__(
        self,
        server: Server,
        options: Options,
        seed: int,
        *,
        sink: Callable[[Point], None],
        on_event: Callable[[Event], None],
        alive: Callable[[], bool] | None,
    ) -> None:
        self._server, self._options, self._seed = server, options, seed
        self._sink, self._tell, self._alive = sink, on_event, alive
        self._judge = Judge(state=server.state, dialect=server.dialect, mode=options.mode)
        self._prefills: list[tuple[int, float]] = []
        self._warmed = options.warm_up == 0
        self._serial = 0

    async def run(self, depths: tuple[int, ...], finished: tuple[Point, ...]) -> Sweep:
        """All depths at each concurrency, least first; ends early when the server is lost."""
        pairs, refusals = self._fitting(depths)
        self._corpus = self._text(max((depth for depth, _ in pairs), default=0))
        self._maker = self._prompts()
        self._tell(self._started(refusals))
        kept = {_key(point): point for point in finished if point.invalid is None and not point.open}
        points: list[Point] = []
        stopped = None
        for concurrency, group in self._groups(pairs):
            for depth in group:
                known = kept.get((depth, self._options.output, concurrency, self._options.mode))
                point = known or await self._point(depth, concurrency)
                points.append(point)
                self._learn(point)
                stopped = self._lost(point)
                if stopped is not None:
                    return self._result(points, refusals, stopped)
        return self._result(points, refusals, None)

    def _fitting(self, depths: tuple[int, ...]) -> tuple[tuple[tuple[int, int], ...], tuple[Refusal, ...]]:
        pairs, refusals = [], []
        for concurrency in self._options.concurrency:
            for depth in depths:
                reason = refusal(self._server.state, depth, output=self._options.output, concurrency=concurrency)
                if reason is None:
                    pairs.append((depth, concurrency))
                else:
                    refusals.append(reason)
        return tuple(pairs), tuple(refusals)

    def _groups(self, pairs: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, list[int]]]:
        for concurrency in sorted(set(self._options.concurrency)):
            yield concurrency, sorted(depth for depth, count in pairs if count == concurrency)

    def _text(self, deepest: int) -> Corpus:
        characters = max(deepest, 1) * CHARACTERS_A_TOKEN
        if self._options.texts:
            return file_corpus(self._options.texts, characters=characters)
        return python_corpus(self._options.content, characters=characters, seed=self._seed)

    def _prompts(self) -> PromptMaker:
        server = self._server
        return PromptMaker(
            self._corpus,
            server.counter,
            send_ids=server.dialect.token_ids,
            overhead=server.dialect.overhead,
            seed=self._seed,
        )

    def _started(self, refusals: tuple[Refusal, ...]) -> Started:
        server = self._server
        return Started(
            state=server.state,
            dialect=server.dialect,
            counter=server.counter.name,
            sends_ids=server.dialect.token_ids,
            seed=self._seed,
            refusals=refusals,
        )

    async def _point(self, depth: int, concurrency: int) -> Point:
        """Batches at one depth until the interval is narrow, an error ends it, or its time is up."""
        began = time.monotonic()
        samples: tuple[Sample, ...] = ()
        if not self._warmed:
            samples = tuple(msgspec.structs.replace(sample, warm_up=True) for sample in await self._warm(depth))
            self._warmed = True
        repeat = 0
        while True:
            repeat += 1
            predicted = predicted_prefill(tuple(self._prefills), depth * concurrency)
            self._tell(Sending(asked=Tokens(depth), concurrency=concurrency, repeat=repeat, predicted=predicted))
            samples += await self._batch(depth, concurrency, predicted)
            point = self._judged(depth, concurrency, samples)
            if point.invalid is None and not self._enough(point, repeat, time.monotonic() - began):
                self._keep(msgspec.structs.replace(point, open=True))
                continue
            self._keep(point)
            return point

    def _keep(self, point: Point) -> None:
        self._sink(point)
        self._tell(Kept(point=point))

    async def _warm(self, depth: int) -> tuple[Sample, ...]:
        samples: tuple[Sample, ...] = ()
        for _ in range(self._options.warm_up):
            samples += await self._batch(depth, 1, None)
        return samples

    async def _batch(self, depth: int, concurrency: int, predicted: Seconds | None) -> tuple[Sample, ...]:
        """One batch; where the server counted a text otherwise than asked, it is recut and all are sent once more.

        The first sending is kept as warm-up: its tokens are not those asked for.
        """
        prompts = tuple(self._maker.make(depth) for _ in range(concurrency))
        samples = await self._send(prompts, predicted)
        wrong = [sample for sample in samples if sample.prompt_tokens not in {None, depth}]
        if not wrong or self._maker.sends_ids or any(sample.error for sample in samples):
            return samples
        prompts = tuple(
            prompt
            if sample.prompt_tokens is None
            else self._maker.correct(prompt, asked=depth, counted=sample.prompt_tokens)
            for prompt, sample in zip(prompts, samples, strict=True)
        )
        again = await self._send(prompts, predicted)
        return tuple(msgspec.structs.replace(sample, warm_up=True) for sample in samples) + again

    async def _send(self, prompts: tuple[Prompt, ...], predicted: Seconds | None) -> tuple[Sample, ...]:
        first = self._options.first_patience
        if predicted is not None:
            first = max(TIMES_PREDICTED * predicted, LEAST_PATIENCE)
        watch = Watch(self._server.target, Patience(first=first, gap=GAP_PATIENCE), self._alive)
        if self._options.mode == "cold":
            self._server.flush()
        requests = tuple(Request(prompt=prompt, seed=self._next_seed()) for prompt in prompts)
        return await send(self._server.client, self._server.dialect, requests, output=self._options.output, watch=watch)

    def _next_seed(self) -> int:
        self._serial += 1
        return (self._seed + self._serial) % 2**31

    def _judged(self, depth: int, concurrency: int, samples: tuple[Sample, ...]) -> Point:
        point = Point(
            asked=Tokens(depth),
            output=self._options.output,
            concurrency=concurrency,
            samples=samples,
            mode=self._options.mode,
            content=self._corpus.content,
        )
        invalid = self._judge.invalid(point)
        if invalid is None and self._server.restarted():
            invalid = "the server was restarted meanwhile"
        return msgspec.structs.replace(point, invalid=invalid, flags=self._judge.flags(point))

    def _enough(self, point: Point, repeats: int, spent: float) -> bool:
        if repeats >= self._options.most_repeats or spent >= self._options.point_seconds:
            return True
        if repeats < self._options.repeats:
            return False
        steps = figures(point).step_time
        return steps is not None and steps.half_width is not None and steps.half_width <= self._options.precision

    def _learn(self, point: Point) -> None:
        ttft = figures(point).ttft
        if point.invalid is None and ttft is not None:
            self._prefills.append((point.asked * point.concurrency, ttft.value))

    def _lost(self, point: Point) -> str | None:
        """Why nothing deeper should be sent, after an invalid point."""
        return point.invalid if any(sample.error and not sample.warm_up for sample in point.samples) else None

    def _result(self, points: list[Point], refusals: tuple[Refusal, ...], stopped: str | None) -> Sweep:
        return Sweep(
            state=self._server.state,
            dialect=self._server.dialect,
            seed=self._seed,
            points=tuple(points),
            refusals=refusals,
            stopped=stopped,
        )


def _key(point: Point) -> tuple[int, int, int, str]:
    return point.asked, point.output, point.concurrency, point.mode
