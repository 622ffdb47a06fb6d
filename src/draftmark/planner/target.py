"""What a user wants to serve, and whether a pool holds it."""

from typing import Final, Literal

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.model import Model
from draftmark.planner.terms import exceeds
from draftmark.units import Tokens

MOST_REQUESTS: Final = 10**6
"""Largest concurrency that is taken for meant."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`concurrency` requests at once, each of `context` prompt tokens and `output` tokens."""

    context: Tokens
    output: Tokens
    concurrency: int = 1

    @property
    def length(self) -> Tokens:
        """Prompt and output of one request."""
        return Tokens(self.context + self.output)


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What the target needs of one pool and what that pool is expected to have, in the engine's own unit."""

    needed: int
    available: int
    deviation: float
    unit: Literal["tokens", "blocks"]
    requests: int
    """Most running requests in one pool; a target of more at once is not reached."""
    concurrency: int
    """Requests of the target in the fullest pool."""
    pools: int = 1
    """Pools that the target's requests are spread over."""
    context_ranks: int = 1
    """Decode context ranks that hold different tokens, where the unit counts those of one rank."""

    @property
    def probability(self) -> float:
        """That the target fits."""
        if self.requests < self.concurrency:
            return 0.0
        return 1.0 - exceeds(self.needed - self.available, self.deviation)


def reserve(configuration: Configuration) -> int:
    """Tokens a request beyond prompt and output: what a draft writes before it is accepted, twice with overlap."""
    draft = configuration.speculative
    if draft is None:
        return 0
    ahead = max(draft.draft_tokens or 0, (draft.steps or 0) * (draft.top_k or 1))
    return 2 * ahead if configuration.engine == "sglang" else ahead


def request_tokens(target: Target, configuration: Configuration) -> int:
    """Tokens of one request on one rank, in whole pages; decode context ranks share each page's worth of tokens."""
    page = configuration.page or 1
    shared = page * configuration.parallel.decode_context
    return -(-(target.length + reserve(configuration)) // shared) * page


def in_one_pool(target: Target, pools: int) -> int:
    """Requests in the fullest pool when they are spread evenly: 9 over 8 data-parallel ranks are 2."""
    return -(-target.concurrency // pools)


def running_limit(configuration: Configuration) -> int | None:
    """Most running requests in all pools together, as asked for; None where nothing was.

    SGLang divides its limit among the groups of DP attention; every other limit is each pool's own.
    """
    parallel, most = configuration.parallel, configuration.max_running
    if most is None or (configuration.engine == "sglang" and parallel.data_attention):
        return most
    return most * parallel.data


def check_target(target: Target, model: Model, configuration: Configuration) -> None:
    """Refuse targets that no pool can serve.

    Raises:
        BadInput: the target is beyond the model's context, or beyond the one that the flags allow.
    """
    if target.concurrency > MOST_REQUESTS:
        cause = f"{target.concurrency} requests at once are beyond any server"
        raise BadInput(cause, place="--concurrency", remedy=f"ask for at most {MOST_REQUESTS}")
    for flag, number, least in (
        ("--context", target.context, 1),
        ("--output", target.output, 0),
        ("--concurrency", target.concurrency, 1),
    ):
        if number < least:
            raise BadInput(f"{number} is less than {least}", place=flag, remedy="ask for more")
    most = running_limit(configuration)
    if most is not None and target.concurrency > most:
        raise BadInput(
            f"a target of {target.concurrency} requests at once contradicts a limit of {most}",
            place="--concurrency",
            remedy="raise --max-running (--max-running-requests, --max-num-seqs), or ask for fewer",
        )
    if target.length > model.context:
        raise BadInput(
            f"a target of {target.length} tokens is beyond the model's own {model.context}",
            place=f"--context {target.context} --output {target.output}",
            remedy=f"ask for at most {model.context} together, or change the checkpoint's rope_scaling",
        )
    if configuration.context is not None and -1 != configuration.context < target.length:
        raise BadInput(
            f"a target of {target.length} tokens contradicts a context limited to {configuration.context}",
            place="--max-context",
            remedy="raise the limit, or ask for less",
        )
    if configuration.pool_tokens is not None and target.length > configuration.pool_tokens:
        raise BadInput(
            f"a target of {target.length} tokens contradicts a pool limited to {configuration.pool_tokens}",
            place="--pool-tokens",
            remedy="leave the limit out, or ask for less",
        )
