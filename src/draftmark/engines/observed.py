"""Picking observations: of the last start in a log, of one rank, of one quantity."""

from draftmark.ledger import Account, Entry
from draftmark.observation import Observation
from draftmark.units import Bytes


def last_start(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """What was stated since the last start began; everything where no start is marked."""
    starts = [index for index, one in enumerate(observations) if one.quantity == "start"]
    return observations[starts[-1] :] if starts else observations


def by_rank(observations: tuple[Observation, ...]) -> dict[int, list[Observation]]:
    """Observations by rank; what no rank owns belongs to each, and where no rank is named there is one, 0."""
    ranks = sorted({one.rank for one in observations if one.rank is not None}) or [0]
    return {rank: [one for one in observations if one.rank is None or one.rank == rank] for rank in ranks}


def number(observations: tuple[Observation, ...] | list[Observation], quantity: str) -> float | None:
    """The last number stated for a quantity."""
    values = [one.value for one in observations if one.quantity == quantity and not isinstance(one.value, str)]
    return values[-1] if values else None


def held(seen: list[Observation], quantity: str, account: Account) -> list[Entry]:
    """Entries of one account, one for each time that its bytes were stated."""
    return [
        Entry(account=account, bytes=Bytes(int(one.value)), why=f"line {one.source.line}: {one.source.text[:200]}")
        for one in seen
        if one.quantity == quantity
    ]
