"""Who computes what: the line of tiles and its equal parts.

The kernels work this out on the device from the lengths; here it is in Python, to size the workspace and to be tested.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Part:
    """A team's tiles of one request, [begin, stop) of the request's own, and the slot of its partial result."""

    team: int
    request: int
    begin: int
    stop: int
    slot: int


def row_blocks(max_nodes: int, heads: int, rows: int) -> int:
    """Blocks of `rows` rows that a request of `max_nodes` nodes takes."""
    return -(-max_nodes * heads // rows)


def teams_for(multiprocessors: int, blocks: int) -> int:
    """Teams of `blocks` programs each, so that all run at once where they can."""
    return max(1, multiprocessors // blocks)


def parts(tiles: tuple[int, ...], teams: int, min_tiles: int, extra: int = 0) -> tuple[Part, ...]:
    """Every team's parts, in order of the line; `extra` tiles before a request's own stand for what starting it costs.

    Every next part has a higher team or request than the one before, so `team + request` is a slot of its own.
    """
    share = max(-(-sum(count + extra for count in tiles if count) // teams), min_tiles)
    found = []
    start = 0
    for request, count in enumerate(tiles):
        start += extra if count else 0
        for team in range(start // share, -(-(start + count) // share) if count else 0):
            begin, stop = max(team * share - start, 0), min((team + 1) * share - start, count)
            found.append(Part(team=team, request=request, begin=begin, stop=stop, slot=team + request))
        start += count
    return tuple(found)
