"""`llama-bench -o json` (or jsonl): prompt processing (pp) and generation (tg) apart, at a depth filled beforehand."""

from collections.abc import Sequence

import msgspec

from draftmark.errors import one_line
from draftmark.sample import Arrival, Point, Sample
from draftmark.sweep.imports.document import Chunks, Count, decode
from draftmark.sweep.imports.timed import SPREAD, Result, spread
from draftmark.units import Seconds, Tokens


class Test(msgspec.Struct):
    """One row: `n_prompt` tokens processed or `n_gen` generated, after `n_depth`; one entry a repeat, nanoseconds."""

    model_type: str
    n_prompt: Count
    n_gen: Chunks
    samples_ns: list[Count]
    n_depth: Count = 0
    model_filename: str | None = None


def read(documents: Sequence[bytes]) -> tuple[Result, ...]:
    """One result a model. Rows that mix pp and tg are passed over.

    Raises:
        msgspec.DecodeError: it is none.
    """
    tests: list[Test] = []
    for document in documents:
        tests += decode(document, list[Test]) if document.lstrip().startswith(b"[") else [decode(document, Test)]
    models = dict.fromkeys(test.model_filename or test.model_type for test in tests)
    return tuple(
        Result(model=one_line(model), points=tuple(_point(test) for test in _apart(tests, model))) for model in models
    )


def _apart(tests: Sequence[Test], model: str) -> list[Test]:
    """The model's rows of prompt processing or of generation alone."""
    return [
        test
        for test in tests
        if (test.model_filename or test.model_type) == model and bool(test.n_prompt) != bool(test.n_gen)
    ]


def _point(test: Test) -> Point:
    prefill = test.n_prompt > 0
    return Point(
        asked=Tokens(test.n_depth + test.n_prompt),
        output=Tokens(test.n_gen),
        concurrency=1,
        samples=tuple(
            _prefill(test, index, nanoseconds / 1e9) if prefill else _decode(test, index, nanoseconds / 1e9)
            for index, nanoseconds in enumerate(test.samples_ns)
        ),
        mode="warm" if test.n_depth or not prefill else "cold",
        flags=("imported", "without tokenizing, sampling or a server", *(() if prefill else (SPREAD,))),
    )


def _prefill(test: Test, index: int, seconds: float) -> Sample:
    return Sample(
        due=Seconds(index),
        sent=Seconds(index),
        arrivals=(Arrival(at=Seconds(seconds), tokens=None),),
        ended=Seconds(seconds),
        prompt_tokens=Tokens(test.n_depth + test.n_prompt),
        cached_tokens=Tokens(test.n_depth),
        completion_tokens=None,
        counted_by="none",
    )


def _decode(test: Test, index: int, seconds: float) -> Sample:
    """Generation starts from a filled cache: the moment zero has no token yet, and is no first token."""
    moments = spread(0.0, seconds, test.n_gen + 1)
    return Sample(
        due=Seconds(index),
        sent=Seconds(index),
        arrivals=tuple(Arrival(at=Seconds(at), tokens=Tokens(tokens)) for tokens, at in enumerate(moments)),
        ended=Seconds(seconds),
        prompt_tokens=Tokens(test.n_depth),
        cached_tokens=Tokens(test.n_depth),
        completion_tokens=Tokens(test.n_gen),
        counted_by="token ids",
        decode_only=True,
    )
