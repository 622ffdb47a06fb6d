"""One request as it was measured, and points of a sweep made of them."""

from typing import Literal

import msgspec

from draftmark.units import Seconds, Tokens

CountSource = Literal["usage per chunk", "token ids", "usage at the end", "chunks", "none"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of the stream: seconds after the request was sent, and output tokens so far (None: not known yet)."""

    at: Seconds
    tokens: Tokens | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times are seconds on one monotonic clock; tokens are the server's own counts."""

    due: Seconds
    sent: Seconds
    arrivals: tuple[Arrival, ...]
    ended: Seconds | None
    prompt_tokens: Tokens | None
    cached_tokens: Tokens | None
    completion_tokens: Tokens | None
    counted_by: CountSource
    finish_reason: str | None = None
    error: str | None = None
    warm_up: bool = False
    seed: int | None = None

    @property
    def ttft(self) -> Seconds | None:
        """Time to first token, from sending; None where nothing came."""
        return self.arrivals[0].at if self.arrivals else None

    @property
    def decode_time(self) -> Seconds | None:
        """From the first chunk with output to the last; None with fewer than two."""
        if len(self.arrivals) < 2:
            return None
        return Seconds(self.arrivals[-1].at - self.arrivals[0].at)

    @property
    def decode_tokens(self) -> Tokens | None:
        """Tokens that came after the first chunk: what `decode_time` was spent on."""
        first = self.arrivals[0].tokens if self.arrivals else None
        if first is None or self.completion_tokens is None:
            return None
        return Tokens(self.completion_tokens - first)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Samples at one depth. `invalid` is the reason why it must not be used; None when it may."""

    asked: Tokens
    output: Tokens
    concurrency: int
    samples: tuple[Sample, ...]
    mode: Literal["cold", "warm"] = "cold"
    invalid: str | None = None
    flags: tuple[str, ...] = ()
    """What a reader should know of a valid point: unproven cold, retractions, counts with a bound."""
