"""GuideLLM's JSON report (`--output kind=json`), 0.6 to 0.8: one entry a request, chunk times only as a sum."""

import msgspec

from draftmark.sample import Point, Sample
from draftmark.sweep.imports.timed import SPREAD, points, sample, spread


class Timings(msgspec.Struct):
    """Unix times, seconds."""

    request_start: float | None = None
    targeted_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int | None = None


class Info(msgspec.Struct):
    """Of one request."""

    timings: Timings
    error: str | None = None


class Request(msgspec.Struct):
    """One request."""

    info: Info
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Requests(msgspec.Struct):
    """By how they ended."""

    successful: list[Request]
    errored: list[Request] = []


class Strategy(msgspec.Struct):
    """How requests were sent."""

    max_concurrency: int | None = None
    rate: float | None = None


class Config(msgspec.Struct):
    """Of one benchmark."""

    strategy: Strategy


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


def read(document: bytes) -> tuple[str | None, tuple[Point, ...]] | None:
    """No model name, and the points; None where this is another format."""
    try:
        report = msgspec.json.decode(document, type=Report)
    except msgspec.MsgspecError:
        return None
    found: list[Point] = []
    for benchmark in report.benchmarks:
        strategy = benchmark.config.strategy
        requests = [*benchmark.requests.successful, *benchmark.requests.errored]
        found += points(
            [_sample(request) for request in requests],
            concurrency=strategy.max_concurrency or 1,
            rate=strategy.rate,
            flags=(SPREAD,),
        )
    return None, tuple(found)


def _sample(request: Request) -> Sample:
    times = request.info.timings
    sent = times.request_start or 0.0
    chunks: tuple[float, ...] = ()
    if times.first_token_iteration is not None and times.last_token_iteration is not None:
        duration = times.last_token_iteration - times.first_token_iteration
        chunks = spread(times.first_token_iteration - sent, duration, times.token_iterations or 2)
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
