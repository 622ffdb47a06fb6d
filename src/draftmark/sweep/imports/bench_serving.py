"""`vllm bench serve --save-result --save-detailed` and `sglang.bench_serving --output-details`.

SGLang's client grew out of vLLM's, and both keep the same lists, one entry a request. vLLM writes one JSON document,
SGLang a line a run.
"""

from typing import Literal

import msgspec

from draftmark.sample import Point
from draftmark.sweep.imports.timed import accumulate, points, sample


class Result(msgspec.Struct):
    """One run. Times in seconds; `itls` are gaps between chunks (SGLang's native route: between tokens)."""

    backend: str
    duration: float
    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    errors: list[str] = []
    start_times: list[float] = []
    model_id: str | None = None
    max_concurrency: int | None = None
    request_rate: float | Literal["inf"] | None = None


def read(document: bytes) -> tuple[str | None, tuple[Point, ...]] | None:
    """The model and the points; None where this is another format, or was saved without the details."""
    try:
        result = msgspec.json.decode(document.replace(b": Infinity", b': "inf"'), type=Result)
    except msgspec.MsgspecError:
        return None
    rate = result.request_rate if isinstance(result.request_rate, float) else None
    samples = []
    for index, (prompt, output, ttft, gaps) in enumerate(
        zip(result.input_lens, result.output_lens, result.ttfts, result.itls, strict=True)
    ):
        error = result.errors[index] if index < len(result.errors) else ""
        start = result.start_times[index] if index < len(result.start_times) else float(index)
        chunks = accumulate(ttft, gaps) if ttft > 0 else ()
        samples.append(
            sample(due=start, sent=start, prompt=prompt, cached=None, output=output, chunks=chunks, error=error)
        )
    return result.model_id, points(samples, concurrency=result.max_concurrency or 1, rate=rate)
