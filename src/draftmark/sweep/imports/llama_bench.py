"""`llama-bench -o json`: prompt processing (pp) and generation (tg) apart, at a depth that was filled beforehand."""

import msgspec

from draftmark.sample import Arrival, Point, Sample
from draftmark.sweep.imports.timed import SPREAD, spread
from draftmark.units import Seconds, Tokens


class Test(msgspec.Struct):
    """One row: `n_prompt` tokens processed or `n_gen` generated, after `n_depth`; one entry a repeat, nanoseconds."""

    model_type: str
    n_prompt: int
    n_gen: int
    samples_ns: list[int]
    n_depth: int = 0
    model_filename: str | None = None


def read(document: bytes) -> tuple[str | None, tuple[Point, ...]] | None:
    """The model and the points; None where this is another format. Rows that mix pp and tg are passed over."""
    try:
        tests = msgspec.json.decode(document, type=list[Test])
    except msgspec.MsgspecError:
        return None
    found = tuple(_point(test) for test in tests if bool(test.n_prompt) != bool(test.n_gen))
    return (tests[0].model_filename if tests else None), found


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
