"""Samples out of what other tools keep: a TTFT and gaps, or only sums."""

from collections.abc import Iterable, Sequence

import msgspec

from draftmark.errors import one_line
from draftmark.sample import Arrival, Point, Sample
from draftmark.units import Seconds, Tokens

SPREAD = "imported: times between the first and the last chunk are spread evenly, the file has no more"
"""A flag: gaps of such a point are a mean, not measurements."""
CLIENT_COUNT = (
    "imported: tokens as the client counted them; a server counts its chat template too, and may count otherwise"
)
"""A flag: not the usage of the server, or not known to be."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark of a file held."""

    model: str | None
    points: tuple[Point, ...]


def sample(
    *,
    due: float,
    sent: float,
    prompt: int | None,
    cached: int | None,
    output: int | None,
    chunks: Sequence[float],
    error: str | None = None,
    warm_up: bool = False,
) -> Sample:
    """One request whose chunks came at these seconds after it was sent.

    Where there are as many chunks as tokens each brought one; otherwise the count at each is unknown but the last.
    """
    counts: list[int | None] = [None] * len(chunks)
    if output is not None and chunks:
        counts = list(range(1, output + 1)) if len(chunks) == output else [*counts[:-1], output]
    return Sample(
        due=Seconds(due),
        sent=Seconds(sent),
        arrivals=tuple(
            Arrival(at=Seconds(at), tokens=None if tokens is None else Tokens(tokens))
            for at, tokens in zip(chunks, counts, strict=True)
        ),
        ended=Seconds(chunks[-1]) if chunks else None,
        prompt_tokens=None if prompt is None else Tokens(prompt),
        cached_tokens=None if cached is None else Tokens(cached),
        completion_tokens=None if output is None else Tokens(output),
        counted_by="usage at the end" if output is not None else "chunks",
        error=_words(error) if error else None,
        warm_up=warm_up,
    )


def _words(error: str) -> str:
    """On one line; of a traceback, which vLLM's client keeps whole, the last one: it says what was wrong."""
    lines = error.strip().splitlines() or [error]
    return one_line(lines[-1] if lines[0].startswith("Traceback") else error) or "it failed without a word"


def spread(first: float, duration: float, chunks: int) -> tuple[float, ...]:
    """`chunks` moments from `first` on, evenly over `duration`."""
    if chunks < 2:
        return (first,) * chunks
    return tuple(first + duration * index / (chunks - 1) for index in range(chunks))


def accumulate(first: float, gaps: Iterable[float]) -> tuple[float, ...]:
    """The first moment and those after each gap."""
    moments = [first]
    for gap in gaps:
        moments.append(moments[-1] + gap)
    return tuple(moments)


def overlap(samples: Iterable[Sample]) -> int:
    """Most requests that were open at once, by their times; at least one."""
    changes = []
    for one in samples:
        if one.ended is not None:
            changes += [(one.sent, 1), (one.sent + one.ended, -1)]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return max(most, 1)


def points(
    samples: Iterable[Sample], *, concurrency: int, rate: float | None = None, flags: tuple[str, ...] = ()
) -> tuple[Point, ...]:
    """A point for each length of prompt and output, shortest first; cold unless tokens are known to be cached."""
    groups: dict[tuple[int, int], list[Sample]] = {}
    for one in samples:
        groups.setdefault((one.prompt_tokens or 0, one.completion_tokens or 0), []).append(one)
    return tuple(
        Point(
            asked=Tokens(prompt),
            output=Tokens(output),
            concurrency=concurrency,
            rate=rate,
            samples=tuple(group),
            mode="warm" if any(one.cached_tokens for one in group) else "cold",
            invalid=next((one.error for one in group if one.error and not one.warm_up), None),
            flags=("imported", *flags),
        )
        for (prompt, output), group in sorted(groups.items())
    )
