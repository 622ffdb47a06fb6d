"""What the user gave, checked before anything is sent."""

import itertools
import math
from typing import Final

from draftmark.errors import BadInput
from draftmark.sweep.options import Options
from draftmark.sweep.prompts import LEAST_TOKENS

MOST_STREAMS: Final = 10_000
"""Requests at once: each is a connection and a prompt in memory."""
MOST_REQUESTS: Final = 1_000_000
LONGEST: Final = 86_400.0
"""Seconds over which requests at a rate may come: a day."""


def check_depths(depths: tuple[int, ...]) -> None:
    """Raise BadInput unless there are depths, each large enough and larger than the one before."""
    if not depths:
        raise BadInput("no depths are given", place="--depths", remedy="write them as in --depths 1k,4k,16k")
    if depths[0] < LEAST_TOKENS:
        raise BadInput(f"{depths[0]} tokens are too few", place="--depths", remedy=f"begin at {LEAST_TOKENS} or more")
    for before, depth in itertools.pairwise(depths):
        if depth <= before:
            raise BadInput(
                f"depths must increase, and {depth:,} follows {before:,}",
                place="--depths",
                remedy="order them, each once",
            )


def check_options(options: Options) -> None:
    """Raise BadInput, which names the flag, for a number that measures nothing or never ends, and a key or a model's
    name that cannot be sent."""
    _check_numbers(options)
    key = options.api_key or ""
    if not key.isascii() or not key.isprintable():
        raise BadInput(
            "the key has characters that no HTTP header carries",
            place="--api-key or OPENAI_API_KEY",
            remedy="give it in printable ASCII, as it was issued",
        )
    try:
        (options.model or "").encode()
    except UnicodeEncodeError:
        raise BadInput(
            "the model's name is not UTF-8", place="--model", remedy="give a name the server lists"
        ) from None


def _check_numbers(options: Options) -> None:
    times = {"--point-time": options.point_seconds, "--timeout": options.first_patience, "--stall": options.stall}
    for flag, seconds in times.items():
        _require(_positive(seconds), f"{seconds:g} is no number of seconds above 0", flag)
    precise = math.isfinite(options.precision) and options.precision >= 0
    _require(precise, f"{options.precision:g} is no share of a step", "--precision", "write 0.02 for 2 %")
    for rate in options.rates:
        _require(_positive(rate), f"{rate:g} is no rate above 0", "--rate", "write requests a second, as in 0.5,1,2")
    _require(
        options.output >= 1, "there is nothing to measure without output", "--output", "ask for one or more tokens"
    )
    together = "requests come at a rate or so many at once, not both"
    _require(not options.rates or options.concurrency == (1,), together, "--rate", "leave --concurrency out")
    allowed = 1 <= options.requests <= MOST_REQUESTS
    _require(allowed, f"requests at a rate must be 1 to {MOST_REQUESTS:,}", "--requests")
    for rate in options.rates:
        slow = f"{options.requests:,} requests at {rate:g} a second take more than a day"
        _require(options.requests / rate <= LONGEST, slow, "--rate", "raise it, or lower --requests")
    streams = options.concurrency or (0,)
    allowed = min(streams) >= 1 and max(streams) <= MOST_STREAMS
    _require(allowed, f"requests at once must be 1 to {MOST_STREAMS:,}", "--concurrency")
    _require(options.warm_up >= 0, f"{options.warm_up} is less than none", "--warm-up")
    _require(options.repeats >= 1, f"{options.repeats} is less than one", "--repeats")
    fewer = f"{options.most_repeats} is less than the {options.repeats} of --repeats"
    _require(options.most_repeats >= options.repeats, fewer, "--max-repeats", "raise it, or lower --repeats")


def _positive(number: float) -> bool:
    return math.isfinite(number) and number > 0


def _require(met: bool, cause: str, flag: str, remedy: str = "give another number") -> None:
    if not met:
        raise BadInput(cause, place=flag, remedy=remedy)
