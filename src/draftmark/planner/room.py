"""What fits into a pool: the lengths at which people ask, and how many requests of each it holds."""

from typing import Final

from draftmark.planner.outcome import Room
from draftmark.units import Tokens

_LENGTHS: Final = (1_000, 8_000, 32_000, 128_000, 200_000, 1_000_000)


def lengths(context: int) -> tuple[int, ...]:
    """The lengths to report on, up to and with `context`."""
    return tuple(sorted({length for length in _LENGTHS if length < context} | {context}))


def room(pool_tokens: int, *, context: int, page: int = 1, most: int | None = None, pools: int = 1) -> tuple[Room, ...]:
    """Requests at once, by length, for lengths up to `context`; `most` is the engine's own limit in one pool."""
    found = []
    for length in lengths(context):
        pages = -(-length // page) * page
        requests = pool_tokens // pages
        if most is not None:
            requests = min(requests, most)
        found.append(Room(length=Tokens(length), requests=requests, in_all=requests * pools))
    return tuple(found)
