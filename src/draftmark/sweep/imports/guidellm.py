"""GuideLLM's JSON report (`--output kind=json`), 0.6 to 0.8: one entry a request, chunk times only as a sum."""

from collections.abc import Sequence

import msgspec

from draftmark.errors import one_line
from draftmark.sample import Sample
from draftmark.sweep.imports.document import Chunks, Count, decode
from draftmark.sweep.imports.timed import SPREAD, Result, overlap, points, sample, spread


class Timings(msgspec.Struct):
    """Unix times, seconds."""

    request_start: float | None = None
    targeted_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: Chunks | None = None


class Info(msgspec.Struct):
    """Of one request."""

    timings: Timings
    error: str | None = None


class Request(msgspec.Struct):
    """One request."""

    info: Info
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    output_tokens: Count | None = None


class Requests(msgspec.Struct):
    """By how they ended."""

    successful: list[Request]
    errored: list[Request] = []


class Strategy(msgspec.Struct):
    """How requests were sent: so many at once, at a rate, or as many as go."""

    max_concurrency: Count | None = None
    streams: Count | None = None
    rate: float | None = None


class Backend(msgspec.Struct):
    """What was spoken to."""

    model: str | None = None


class Config(msgspec.Struct):
    """Of one benchmark."""

    strategy: Strategy
    backend: Backend | None = None


class Benchmark(msgspec.Struct):
    """One strategy's requests."""

    config: Config
    requests: Requests


class Metadata(msgspec.Struct):
    """Of the report."""

    guidellm_version: str


class Report(msgspec.Struct):
    """The document."""

    metadata: Metadata
    benchmarks: list[Benchmark]


def read(documents: Sequence[bytes]) -> tuple[Result, ...]:
    """One result a benchmark.

    Raises:
        msgspec.DecodeError: it is none.
    """
    reports = [decode(document, Report) for document in documents]
    return tuple(_result(benchmark) for report in reports for benchmark in report.benchmarks)


def _result(benchmark: Benchmark) -> Result:
    strategy, backend = benchmark.config.strategy, benchmark.config.backend
    samples = [_sample(request) for request in (*benchmark.requests.successful, *benchmark.requests.errored)]
    at_once = 1 if strategy.rate is not None else strategy.streams or strategy.max_concurrency or overlap(samples)
    made = points(samples, concurrency=min(at_once, len(samples)) or 1, rate=strategy.rate, flags=(SPREAD,))
    model = backend.model if backend is not None else None
    return Result(model=None if model is None else one_line(model), points=made)


def _sample(request: Request) -> Sample:
    times = request.info.timings
    sent = times.request_start or 0.0
    chunks: tuple[float, ...] = ()
    if times.first_token_iteration is not None and times.last_token_iteration is not None:
        duration = times.last_token_iteration - times.first_token_iteration
        chunks = spread(max(times.first_token_iteration - sent, 0.0), max(duration, 0.0), times.token_iterations or 2)
    due = sent if times.targeted_start is None else times.targeted_start
    return sample(
        due=due,
        sent=sent,
        prompt=request.prompt_tokens,
        cached=request.cached_tokens,
        output=request.output_tokens,
        chunks=chunks,
        error=request.info.error,
    )
