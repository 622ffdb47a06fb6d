"""The sweep's client against a server whose truth is known: is what it measures what happened?"""

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from statistics import fmean, median
from typing import Final

import msgspec

from draftmark.physics.statistics import tail
from draftmark.sample import Sample
from draftmark.selftest.model import Setup
from draftmark.selftest.pretence import Truth
from draftmark.selftest.process import GroundTruth, ground_truth
from draftmark.selftest.schedule import SHAPES, Pace, Shape
from draftmark.selftest.server import MODEL
from draftmark.sweep.batch import Request, send
from draftmark.sweep.client import Client, target_of
from draftmark.sweep.dialect import Dialect
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.route import Route
from draftmark.sweep.watch import Patience, Watch
from draftmark.units import Seconds

CHAT: Final[frozenset[Shape]] = frozenset({"role chunk", "reasoning", "reasoning_content"})
UNCOUNTED: Final[frozenset[Shape]] = frozenset({"no usage"})
STREAMS: Final = 64
PACED: Final = Pace(first=0.5, step=0.02)
"""64 streams at this pace are 3,200 chunks a second."""


class ShapeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One shape of stream: errors of times in seconds, of rates as shares; None where nothing can be said."""

    shape: Shape
    requests: int
    exact: bool
    """Every chunk was counted as it was sent."""
    ttft_median: Seconds
    ttft_worst: Seconds
    rate_median: float | None
    """Error of the decode rate against the server's own times; None where the server gives no counts."""
    rate_worst: float | None


class LoadCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Many streams at once, and the fastest this client goes on this machine, which the server shares."""

    streams: int
    ttft_mean: Seconds
    ttft_p99: Seconds | None
    requests_per_second: float
    chunks_per_second: float
    peak_memory: int
    """Bytes of this process, at its peak."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    shapes: tuple[ShapeCheck, ...]
    load: LoadCheck


async def _batch(client: Client, route: Route, count: int, output: int, first_seed: int) -> tuple[Sample, ...]:
    dialect = Dialect(route=route, model=MODEL, token_ids=False)
    requests = tuple(
        Request(prompt=Prompt(ids=None, text=f"prompt {first_seed + index}"), seed=first_seed + index)
        for index in range(count)
    )
    watch = Watch(client.target, Patience(first=30.0, gap=30.0))
    return await send(client, dialect, requests, output=output, watch=watch)


def check_shape(server: GroundTruth, shape: Shape, *, requests: int, output: int, pace: Pace) -> ShapeCheck:
    """Requests one after the other in one shape, each against the server's log of it."""
    server.control(Setup(shape=shape, pace=pace))
    route: Route = "/v1/chat/completions" if shape in CHAT else "/v1/completions"
    server.truth()

    async def measure() -> list[Sample]:
        client = Client(target_of(server.url))
        samples: list[Sample] = []
        for index in range(requests):
            samples += await _batch(client, route, 1, output, index)
        client.close()
        return samples

    samples = asyncio.run(measure())
    truths = {truth.seed: truth for truth in server.truth()}
    pairs = [(sample, truths[sample.seed]) for sample in samples]
    ttfts = [ttft_error(sample, truth) for sample, truth in pairs]
    rates = [error for sample, truth in pairs if (error := rate_error(sample, truth)) is not None]
    return ShapeCheck(
        shape=shape,
        requests=requests,
        exact=all(counted_exactly(sample, truth) or shape in UNCOUNTED for sample, truth in pairs),
        ttft_median=Seconds(median(ttfts)),
        ttft_worst=Seconds(max(ttfts)),
        rate_median=median(rates) if rates else None,
        rate_worst=max(rates) if rates else None,
    )


def ttft_error(sample: Sample, truth: Truth) -> float:
    """Seconds by which the measured TTFT is off that from the server's reading the request to its first send."""
    assert sample.ttft is not None, f"no output arrived: {sample.error}"
    return abs(sample.ttft - (truth.sends[0][0] - truth.received))


def rate_error(sample: Sample, truth: Truth) -> float | None:
    """Share by which the measured decode rate is off that of the server's sends; None where it cannot be counted."""
    if sample.decode_rate is None:
        return None
    first_at, (last_at, last) = truth.sends[0][0], truth.sends[-1]
    first = max(tokens for at, tokens in truth.sends if at == first_at)
    true = (last - first) / (last_at - first_at)
    return abs(sample.decode_rate / true - 1)


def counted_exactly(sample: Sample, truth: Truth) -> bool:
    """The sample has every chunk of the server's log with its cumulative tokens."""
    return [arrival.tokens for arrival in sample.arrivals] == [tokens for _, tokens in truth.sends]


def check_load(server: GroundTruth, *, seconds: float) -> LoadCheck:
    """TTFT with many paced streams, then rates without any pace."""
    server.control(Setup(pace=PACED))
    server.truth()
    waves = 2

    async def paced() -> list[Sample]:
        client = Client(target_of(server.url))
        samples: list[Sample] = []
        for wave in range(waves):
            samples += await _batch(client, "/v1/completions", STREAMS, 64, wave * STREAMS)
        client.close()
        return samples

    samples = asyncio.run(paced())
    truths = {truth.seed: truth for truth in server.truth()}
    errors = [ttft_error(sample, truths[sample.seed]) for sample in samples]
    server.control(Setup(pace=Pace(first=0.0, step=0.0)))
    requests, _ = asyncio.run(_flood(server.url, output=1, seconds=seconds))
    _, chunks = asyncio.run(_flood(server.url, output=128, seconds=seconds))
    return LoadCheck(
        streams=STREAMS,
        ttft_mean=Seconds(fmean(errors)),
        ttft_p99=None if (worst := tail(errors, 0.99)) is None else Seconds(worst),
        requests_per_second=requests,
        chunks_per_second=chunks,
        peak_memory=peak_memory(),
    )


async def _flood(url: str, *, output: int, seconds: float) -> tuple[float, float]:
    """Requests and chunks a second over many connections that never pause, answers decoded included."""
    from draftmark.sweep.events import read

    client = Client(target_of(url))
    await client.connect(STREAMS)
    body = Dialect(route="/v1/completions", model=MODEL, token_ids=False).body(
        Prompt(ids=None, text="flood"), output=output, seed=0
    )
    end = time.monotonic() + seconds
    counts = [0, 0]

    async def one() -> None:
        while time.monotonic() < end:
            exchange = await client.post("/v1/completions", body, output=output)
            counts[0] += 1
            counts[1] += len(read(exchange.pieces, exchange.sent).arrivals)

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(STREAMS)))
    spent = time.monotonic() - began
    client.close()
    return counts[0] / spent, counts[1] / spent


def peak_memory() -> int:
    """Bytes that this process held at most (`ru_maxrss`, in KiB except on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def run(*, requests: int = 10, seconds: float = 2.0, on_shape: Callable[[ShapeCheck], None] = lambda _: None) -> Report:
    """Every shape, then the load."""
    shapes = []
    with ground_truth(Setup()) as server:
        for shape in SHAPES:
            checked = check_shape(server, shape, requests=requests, output=32, pace=Pace(first=0.05, step=0.005))
            shapes.append(checked)
            on_shape(checked)
        return Report(shapes=tuple(shapes), load=check_load(server, seconds=seconds))
