"""`vllm bench serve --save-result --save-detailed` and `sglang.bench_serving --output-details`.

SGLang's client grew out of vLLM's, and both keep the same lists, one entry a request. vLLM writes one JSON document
(a line a run with --append-result), SGLang a line a run.
"""

import math
from collections.abc import Sequence

import msgspec

from draftmark.errors import one_line
from draftmark.sample import Sample
from draftmark.sweep.imports.document import Count, Time, decode
from draftmark.sweep.imports.timed import CLIENT_COUNT, Result, accumulate, overlap, points, sample


class ServerInfo(msgspec.Struct):
    """What SGLang's client keeps of the server."""

    model_path: str | None = None
    served_model_name: str | None = None


class Benchmark(msgspec.Struct):
    """One run. Times in seconds; `itls` are gaps between chunks (SGLang's native route: between tokens)."""

    backend: str
    input_lens: list[Count]
    output_lens: list[Count]
    ttfts: list[Time]
    itls: list[list[Time]]
    errors: list[str | None] = []
    start_times: list[float] = []
    model_id: str | None = None
    queue_times: list[float | None] | None = None
    server_info: ServerInfo | None = None
    max_concurrency: Count | None = None
    max_concurrent_requests: float | None = None
    request_rate: float | str | None = None

    def __post_init__(self) -> None:
        """Lists of different lengths do not say which entries belong together."""
        lengths = {len(one) for one in (self.input_lens, self.output_lens, self.ttfts, self.itls)}
        if len(lengths) > 1:
            raise ValueError("its lists of requests differ in length")

    @property
    def rate(self) -> float | None:
        """Requests a second; None where all come at once, or as a trace has them."""
        finite = isinstance(self.request_rate, float) and math.isfinite(self.request_rate)
        return self.request_rate if finite and isinstance(self.request_rate, float) else None

    @property
    def model(self) -> str | None:
        """As vLLM's client was told, or as SGLang's server says."""
        known = self.server_info or ServerInfo()
        name = self.model_id or known.served_model_name or known.model_path
        return None if name is None else one_line(name)

    def concurrency(self, samples: Sequence[Sample]) -> int:
        """The limit that was given; without one, requests at a rate count apart, and others as they overlapped."""
        if self.max_concurrency:
            return min(self.max_concurrency, len(samples)) or 1
        if self.rate is not None:
            return 1
        if len(self.start_times) == len(samples):
            return overlap(samples)
        return round(self.max_concurrent_requests or 0) or len(samples) or 1


def read(documents: Sequence[bytes]) -> tuple[Result, ...]:
    """One result a document. Prompts are the server's count in files with `queue_times`: vLLM's client of 0.32, whose
    files have them, takes the usage (benchmarks/lib/endpoint_request_func.py). Others may have the client's.

    Raises:
        msgspec.DecodeError: it is none, or was saved without the details.
    """
    found = []
    for document in documents:
        benchmark = decode(document, Benchmark)
        samples = [_sample(benchmark, index) for index in range(len(benchmark.ttfts))]
        flags = () if benchmark.queue_times is not None else (CLIENT_COUNT,)
        made = points(samples, concurrency=benchmark.concurrency(samples), rate=benchmark.rate, flags=flags)
        found.append(Result(model=benchmark.model, points=made))
    return tuple(found)


def _sample(benchmark: Benchmark, index: int) -> Sample:
    error = benchmark.errors[index] if index < len(benchmark.errors) else None
    start = benchmark.start_times[index] if index < len(benchmark.start_times) else float(index)
    ttft = benchmark.ttfts[index]
    return sample(
        due=start,
        sent=start,
        prompt=benchmark.input_lens[index],
        cached=None,
        output=benchmark.output_lens[index],
        chunks=accumulate(ttft, benchmark.itls[index]) if ttft > 0 else (),
        error=error,
    )
