"""Which depths a server can hold, before anything is sent; and how long a prefill will take. Pure."""

import math
from typing import Final

import msgspec

from draftmark.observation import ServerState
from draftmark.units import Seconds, Tokens


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A depth that is not sent: why, and the deepest at this concurrency that would be (None: not even the least)."""

    asked: Tokens
    concurrency: int
    reason: str
    largest: Tokens | None


def refusal(state: ServerState, asked: int, *, output: int, concurrency: int) -> Refusal | None:
    """Why these requests cannot fit by what the server says of itself; None where they can, or nothing is known."""
    reason = _too_long(state, asked, output) or _too_many(state, asked + output, concurrency)
    if reason is None:
        return None
    return Refusal(
        asked=Tokens(asked),
        concurrency=concurrency,
        reason=reason,
        largest=largest(state, output=output, concurrency=concurrency),
    )


def _too_long(state: ServerState, asked: int, output: int) -> str | None:
    if state.longest_prompt is not None and asked > state.longest_prompt:
        return f"{asked:,} tokens exceed the longest prompt of {state.longest_prompt:,} that the server takes"
    for limit, name in ((state.context, "context length"), (state.longest_request, "longest request")):
        if limit is not None and asked + output > limit:
            return f"{asked:,} + {output:,} tokens of output exceed the {name} of {limit:,}"
    return None


def _too_many(state: ServerState, need: int, concurrency: int) -> str | None:
    ranks = f" on each of {state.ranks} ranks" if state.ranks > 1 else ""
    each = _each(state, concurrency)
    if state.max_running is not None and each > state.max_running:
        return f"{concurrency} requests at once exceed the server's limit of {state.max_running}{ranks}"
    if state.pool_tokens is None or each * _held(state, need) <= state.pool_tokens - state.pool_reserved:
        return None
    times = f"{each} x " if each > 1 else ""
    return (
        f"{times}{_held(state, need):,} tokens (prompt, output, draft and page rounding) exceed the pool of"
        f" {state.pool_tokens - state.pool_reserved:,}{ranks}"
    )


def largest(state: ServerState, *, output: int, concurrency: int) -> Tokens | None:
    """The deepest prompt that fits with its output, worked back from context and pool; None where nothing does."""
    each = _each(state, concurrency)
    if state.max_running is not None and each > state.max_running:
        return None
    limits = [limit - output for limit in (state.context, state.longest_request) if limit is not None]
    if state.longest_prompt is not None:
        limits.append(state.longest_prompt)
    if state.pool_tokens is not None:
        page = state.page or 1
        share = (state.pool_tokens - state.pool_reserved) // each // page * page
        limits.append(share - (state.draft_tokens or 0) - output)
    return Tokens(min(limits)) if limits and min(limits) > 0 else None


def _each(state: ServerState, concurrency: int) -> int:
    """Requests on the fullest rank, where they are spread as evenly as can be: more do not fit for certain."""
    return math.ceil(concurrency / state.ranks)


def _held(state: ServerState, tokens: int) -> int:
    """Pool slots that one request takes: draft tokens on top, whole pages."""
    page = state.page or 1
    return math.ceil((tokens + (state.draft_tokens or 0)) / page) * page


STEEPEST: Final = 2.0
"""Prefill work grows with depth at least as fast as depth, and no faster than its square."""


def predicted_prefill(known: tuple[tuple[int, float], ...], tokens: int) -> Seconds | None:
    """Seconds that a prefill of `tokens` takes, from (tokens, seconds) of shorter ones; None without any.

    A power of depth through the deepest two, its exponent kept between 1 and 2.
    """
    points = sorted(point for point in known if point[1] > 0)
    if not points:
        return None
    depth, seconds = points[-1]
    exponent = 1.0
    if len(points) > 1 and points[-2][0] < depth:
        below, before = points[-2]
        exponent = math.log(seconds / before) / math.log(depth / below)
    exponent = min(max(exponent, 1.0), STEEPEST)
    return Seconds(seconds * (tokens / depth) ** exponent)
