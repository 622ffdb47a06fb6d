"""The line of tiles is shared out whole, in order, and no two parts use one slot."""

from hypothesis import given
from hypothesis import strategies as st

from draftmark.kernels.mla_verify.schedule import parts, row_blocks, teams_for


@given(
    tiles=st.lists(st.integers(0, 40), min_size=1, max_size=12).map(tuple),
    teams=st.integers(1, 20),
    min_tiles=st.integers(1, 4),
    extra=st.integers(0, 5),
)
def test_every_tile_once_and_every_slot_once(tiles: tuple[int, ...], teams: int, min_tiles: int, extra: int) -> None:
    found = parts(tiles, teams, min_tiles, extra)
    covered = [(part.request, tile) for part in found for tile in range(part.begin, part.stop)]
    assert covered == [(request, tile) for request, count in enumerate(tiles) for tile in range(count)]
    slots = [part.slot for part in found]
    assert len(set(slots)) == len(slots)
    assert all(0 <= slot < teams + len(tiles) for slot in slots)
    assert all(0 <= part.team < teams for part in found)


@given(tiles=st.lists(st.integers(0, 400), min_size=1, max_size=64).map(tuple), teams=st.integers(1, 132))
def test_no_team_has_more_than_its_share(tiles: tuple[int, ...], teams: int) -> None:
    load = [0] * teams
    for part in parts(tiles, teams, 1):
        load[part.team] += part.stop - part.begin
    assert max(load) <= -(-sum(tiles) // teams) or sum(tiles) == 0


def test_blocks_and_teams() -> None:
    assert row_blocks(16, 8, 64) == 2
    assert row_blocks(17, 8, 64) == 3
    assert teams_for(132, 2) == 66
    assert teams_for(132, 520) == 1
