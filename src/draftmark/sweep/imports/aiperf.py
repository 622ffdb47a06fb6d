"""AIPerf's profile_export.jsonl: a line a request. Times in milliseconds, starts in Unix nanoseconds."""

from collections.abc import Sequence

import msgspec

from draftmark.sample import Sample
from draftmark.sweep.imports.document import Time, decode
from draftmark.sweep.imports.timed import CLIENT_COUNT, Result, accumulate, overlap, points, sample


class Value(msgspec.Struct):
    """A metric with one number."""

    value: Time


class Values(msgspec.Struct):
    """A metric with one number a chunk."""

    value: list[Time]


class Metadata(msgspec.Struct):
    """When a request was due and sent, and whether it counts."""

    request_start_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class Metrics(msgspec.Struct):
    """What is used of a request; a failed one has hardly any. `usage` is the server's count, the other AIPerf's own."""

    time_to_first_token: Value | None = None
    inter_chunk_latency: Values | None = None
    usage_prompt_tokens: Value | None = None
    usage_completion_tokens: Value | None = None
    usage_prompt_cache_read_tokens: Value | None = None
    input_sequence_length: Value | None = None
    output_sequence_length: Value | None = None


class Problem(msgspec.Struct):
    """Why a request failed."""

    message: str | None = None
    type: str | None = None


class Record(msgspec.Struct):
    """One line (MetricRecordInfo of aiperf/common/models/record_models.py, 0.13)."""

    metadata: Metadata
    metrics: Metrics
    error: Problem | None = None

    @property
    def failure(self) -> str | None:
        """Why it must not be used."""
        if self.error is not None:
            return self.error.message or self.error.type or "it failed without a word"
        return "it was cancelled" if self.metadata.was_cancelled else None

    @property
    def counted_by_server(self) -> bool:
        """Both lengths are the server's."""
        return self.metrics.usage_prompt_tokens is not None and self.metrics.usage_completion_tokens is not None


def read(documents: Sequence[bytes]) -> tuple[Result, ...]:
    """One result of all lines, without a model's name. How many were sent at once is seen from their times.

    Raises:
        msgspec.DecodeError: a line is none.
    """
    records = [decode(document, Record) for document in documents]
    samples = [_sample(record) for record in records]
    sound = [record for record in records if record.failure is None]
    flags = () if all(record.counted_by_server for record in sound) else (CLIENT_COUNT,)
    measured = [one for one in samples if not one.warm_up]
    return (Result(model=None, points=points(samples, concurrency=overlap(measured), flags=flags)),)


def _sample(record: Record) -> Sample:
    found, times = record.metrics, record.metadata
    gaps = [gap / 1e3 for gap in found.inter_chunk_latency.value] if found.inter_chunk_latency else []
    sent = times.request_start_ns / 1e9
    first = found.time_to_first_token
    return sample(
        due=sent if times.credit_issued_ns is None else times.credit_issued_ns / 1e9,
        sent=sent,
        prompt=_whole(found.usage_prompt_tokens or found.input_sequence_length),
        cached=_whole(found.usage_prompt_cache_read_tokens),
        output=_whole(found.usage_completion_tokens or found.output_sequence_length),
        chunks=accumulate(first.value / 1e3, gaps) if first is not None else (),
        error=record.failure,
        warm_up=times.benchmark_phase == "warmup",
    )


def _whole(value: Value | None) -> int | None:
    return None if value is None else round(value.value)
