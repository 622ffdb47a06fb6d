"""One request as it was measured, and points of a sweep made of them."""

from typing import Final, Literal

import msgspec

from draftmark.units import Seconds, Tokens

CountSource = Literal["usage per chunk", "token ids", "usage at the end", "chunks", "none"]
"""Where output tokens were counted: exact at every chunk for the first two, only in all for the third."""


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
    text: str | None = None
    """The beginning of what the model wrote, for a reader who doubts it."""
    answer_at: Seconds | None = None
    """First chunk of the answer after reasoning, after sending; None where no reasoning was streamed apart."""

    decode_only: bool = False
    """Times begin with decoding from a filled cache: there was no first token to wait for."""

    @property
    def ttft(self) -> Seconds | None:
        """Time to first token, from sending; None where nothing came."""
        return self.arrivals[0].at if self.arrivals and not self.decode_only else None

    @property
    def ttft_due(self) -> Seconds | None:
        """Time to first token from when the request was due: what a user waited, the client's own delay included."""
        return None if self.ttft is None else Seconds(self.ttft + self.sent - self.due)

    @property
    def moments(self) -> int:
        """Different times at which chunks came: fewer than chunks where something gathers several."""
        return len({arrival.at for arrival in self.arrivals})

    @property
    def gathered(self) -> bool:
        """Most chunks came together with the one before, so that their times are not those of the engine's steps."""
        return 2 * self.moments < len(self.arrivals)

    @property
    def at_first(self) -> int:
        """Chunks that came at the moment of the first one: their tokens are no part of what was decoded after it."""
        return sum(arrival.at == self.arrivals[0].at for arrival in self.arrivals)

    @property
    def decode_time(self) -> Seconds | None:
        """From the first chunk with output to the last; None where they came at one moment."""
        if self.moments < 2:
            return None
        return Seconds(self.arrivals[-1].at - self.arrivals[0].at)

    @property
    def decode_tokens(self) -> Tokens | None:
        """Tokens that came after the first moment: what `decode_time` was spent on."""
        first = self.arrivals[self.at_first - 1].tokens if self.arrivals else None
        if first is None or self.completion_tokens is None:
            return None
        return Tokens(self.completion_tokens - first)

    @property
    def decode_tokens_bounds(self) -> tuple[Tokens, Tokens] | None:
        """Fewest and most tokens after the first moment, equal where they are known.

        Where only the sum is known, every chunk brought at least one; where not even that, there is no upper bound
        and hence no answer.
        """
        if self.decode_tokens is not None:
            return self.decode_tokens, self.decode_tokens
        if self.completion_tokens is None or not self.arrivals:
            return None
        most = Tokens(max(self.completion_tokens - self.at_first, 0))
        return Tokens(min(len(self.arrivals) - self.at_first, most)), most

    @property
    def steps(self) -> int | None:
        """Chunks after the first moment. One engine step makes one chunk, unless the server gathers several."""
        return len(self.arrivals) - self.at_first if self.moments > 1 else None

    @property
    def step_time(self) -> Seconds | None:
        """Mean time between chunks."""
        if self.decode_time is None or self.steps is None:
            return None
        return Seconds(self.decode_time / self.steps)

    @property
    def tokens_a_step(self) -> float | None:
        """Mean tokens a chunk after the first: with speculation, the acceptance length."""
        if self.decode_tokens is None or self.steps is None:
            return None
        return self.decode_tokens / self.steps

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second after the first chunk; None where the tokens in the first chunk are unknown."""
        return None if self.token_time is None else 1 / self.token_time

    @property
    def token_time(self) -> Seconds | None:
        """Mean time a token after the first chunk; None where the tokens in the first chunk are unknown."""
        if not self.decode_tokens or not self.decode_time:
            return None
        return Seconds(self.decode_time / self.decode_tokens)

    @property
    def prefill_time(self) -> Seconds | None:
        """Time to first token for each prompt token that was not cached (so the first decode step is included).

        None where all of several chunks came at once: then the whole decode is included.
        """
        if self.prompt_tokens is None or not self.ttft or (len(self.arrivals) > 1 and self.moments == 1):
            return None
        fresh = self.prompt_tokens - (self.cached_tokens or 0)
        return Seconds(self.ttft / fresh) if fresh > 0 else None

    @property
    def prefill_rate(self) -> float | None:
        """Prompt tokens that were not cached, a second until the first token."""
        return None if self.prefill_time is None else 1 / self.prefill_time


Mode = Literal["cold", "warm"]

TOO_NOISY: Final = "too noisy to be used: "
"""How the flag of a point begins whose step time is known so badly that nothing should be concluded from it."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Samples at one depth. `invalid` is the reason why it must not be used; None when it may."""

    asked: Tokens
    output: Tokens
    concurrency: int
    samples: tuple[Sample, ...]
    mode: Mode = "cold"
    invalid: str | None = None
    flags: tuple[str, ...] = ()
    """What a reader should know of a valid point: unproven cold, retractions, counts with a bound."""
    rate: float | None = None
    """Requests a second that were due; None where each batch waited for the one before."""
    open: bool = False
    """More samples were to come when this was written: what a run leaves that was killed in the middle of a point."""
    content: str | None = None
    """What the prompts were made of: prose, code, or the file that the user named."""

    @property
    def noisy(self) -> bool:
        """Flagged as too noisy to be used."""
        return any(flag.startswith(TOO_NOISY) for flag in self.flags)

    @property
    def measured(self) -> tuple[Sample, ...]:
        """Samples that count: no warm-up, no error."""
        return tuple(sample for sample in self.samples if not sample.warm_up and sample.error is None)

    @property
    def prompt_tokens(self) -> Tokens | None:
        """Tokens of the prompts by the server's count; None where it gave none or they differ."""
        counts = {sample.prompt_tokens for sample in self.measured}
        return counts.pop() if len(counts) == 1 else None
