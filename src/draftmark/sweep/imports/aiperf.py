"""AIPerf's profile_export.jsonl: a line a request. Times in milliseconds, starts in Unix nanoseconds."""

import msgspec

from draftmark.sample import Point
from draftmark.sweep.imports.timed import accumulate, points, sample


class Value(msgspec.Struct):
    """A metric with one number."""

    value: float


class Values(msgspec.Struct):
    """A metric with one number a chunk."""

    value: list[float]


class Metadata(msgspec.Struct):
    """When a request was due and sent."""

    request_start_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"


class Metrics(msgspec.Struct):
    """What is used of a request. `usage` is the server's count, the other AIPerf's own."""

    time_to_first_token: Value
    inter_chunk_latency: Values | None = None
    usage_prompt_tokens: Value | None = None
    usage_completion_tokens: Value | None = None
    usage_prompt_cache_read_tokens: Value | None = None
    input_sequence_length: Value | None = None
    output_sequence_length: Value | None = None


class Problem(msgspec.Struct):
    """Why a request failed."""

    message: str | None = None


class Record(msgspec.Struct):
    """One line."""

    metadata: Metadata
    metrics: Metrics
    error: Problem | None = None


def read(document: bytes) -> tuple[str | None, tuple[Point, ...]] | None:
    """No model name, and the points of all lines; None where this is another format."""
    try:
        records = [msgspec.json.decode(line, type=Record) for line in document.splitlines() if line.strip()]
    except msgspec.MsgspecError:
        return None
    if not records:
        return None
    samples = []
    for record in records:
        found, times = record.metrics, record.metadata
        gaps = [gap / 1e3 for gap in found.inter_chunk_latency.value] if found.inter_chunk_latency else []
        sent = times.request_start_ns / 1e9
        samples.append(
            sample(
                due=sent if times.credit_issued_ns is None else times.credit_issued_ns / 1e9,
                sent=sent,
                prompt=_whole(found.usage_prompt_tokens or found.input_sequence_length),
                cached=_whole(found.usage_prompt_cache_read_tokens),
                output=_whole(found.usage_completion_tokens or found.output_sequence_length),
                chunks=accumulate(found.time_to_first_token.value / 1e3, gaps),
                error=record.error.message if record.error else None,
            )
        )
    return None, points(samples, concurrency=1)


def _whole(value: Value | None) -> int | None:
    return None if value is None else round(value.value)
