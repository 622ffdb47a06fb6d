"""SGLang's memory as its log states it: a ledger for each rank, and the pool."""

from collections.abc import Iterable

from draftmark.engines.observed import by_rank, held, last_start, number
from draftmark.ledger import Account, Entry, Ledger, Pool, close
from draftmark.observation import Observation, Phase
from draftmark.units import Bytes, Tokens


def ledgers(observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
    """One ledger for each rank of the last start, the one with the least left first."""
    made = [
        ledger
        for rank, seen in by_rank(last_start(observations)).items()
        if (ledger := _ledger(rank, seen)) is not None
    ]
    return tuple(sorted(made, key=lambda ledger: ledger.free))


def pool(observations: tuple[Observation, ...]) -> Pool | None:
    """The pool of the last start. SGLang gives every rank the same tokens, the worst rank's."""
    seen = last_start(observations)
    stated = [one for one in seen if one.quantity == "pool_tokens"]
    if not stated:
        return None
    ranks = by_rank(seen)
    first = next(iter(ranks.values()))
    page = number(seen, "page")
    return Pool(
        tokens=Tokens(int(stated[-1].value)),
        bytes=_pool_bytes(first),
        page=Tokens(int(page)) if page is not None else None,
    )


def _ledger(rank: int, seen: list[Observation]) -> Ledger | None:
    before = _free(seen, "weights", first=True)
    loaded = _free_before_pools(seen)
    pooled = _free(seen, "pool")
    free = next((value for phase in ("warm-up", "graphs", "pool") if (value := _free(seen, phase)) is not None), None)
    if before is None or loaded is None or free is None:
        return None
    entries = [*_start(seen, before)]
    capacity = Bytes(before + sum(entry.bytes for entry in entries))
    entries += held(seen, "weights", "weights")
    entries += held(seen, "draft_weights", "draft weights")
    if not any(entry.account == "weights" for entry in entries):
        entries.append(Entry(account="weights", bytes=Bytes(before - loaded), why="free memory before - after loading"))
    pools = _pools(seen)
    if pooled is not None and not pools:
        pools = [Entry(account="pool", bytes=Bytes(loaded - pooled), why="free memory before - after the pools")]
    elif pooled is not None:
        rest = Bytes(loaded - pooled - sum(entry.bytes for entry in pools))
        pools += _if_gone("request tables", rest, "gone while the pools were made, less the pools")
    captured = _free(seen, "graphs", first=True)
    if pooled is not None and captured is not None:
        gone = Bytes(pooled - captured)
        pools += _if_gone("workspace", gone, "gone between the pools and the first graph")
    entries += [*pools, *held(seen, "graphs", "graphs")]
    return close(rank=rank, capacity=capacity, entries=tuple(entries), free=free)


def _if_gone(account: Account, size: Bytes, why: str) -> list[Entry]:
    """An entry for what is gone; memory that was given back meanwhile (weights that a draft shares) makes none."""
    return [Entry(account=account, bytes=size, why=why)] if size > 0 else []


def _start(seen: list[Observation], before: Bytes) -> Iterable[Entry]:
    """What was gone before the weights: the communicator's buffers, and the context where the capacity is known."""
    communication = held(seen, "communication", "communication") + held(seen, "baseline", "communication")
    capacity = number(seen, "capacity")
    if capacity is not None:
        rest = Bytes(int(capacity) - before - sum(entry.bytes for entry in communication))
        yield Entry(account="context", bytes=rest, why="capacity - free before the weights - communication")
    yield from communication


def _pools(seen: list[Observation]) -> list[Entry]:
    windowed = held(seen, "windowed_pool", "pool")[:1]
    return [
        *(windowed or held(seen, "pool_bytes", "pool")),
        *held(seen, "draft_pool_bytes", "draft pool"),
        *held(seen, "state_pool_bytes", "state pool"),
    ]


def _pool_bytes(seen: list[Observation]) -> Bytes | None:
    entries = [entry for entry in _pools(seen) if entry.account == "pool"]
    return Bytes(sum(entry.bytes for entry in entries)) if entries else None


def _free(seen: list[Observation], phase: Phase, *, first: bool = False) -> Bytes | None:
    """The first or last free memory that was stated in a phase."""
    values = [Bytes(int(one.value)) for one in seen if one.quantity == "free" and one.phase == phase]
    return (values[0] if first else values[-1]) if values else None


def _free_before_pools(seen: list[Observation]) -> Bytes | None:
    """Free memory after the last weights that were loaded before the pools (older versions load the draft later)."""
    loaded: Bytes | None = None
    for one in seen:
        if one.quantity == "free" and one.phase == "weights":
            loaded = Bytes(int(one.value))
        elif one.quantity == "free" and one.phase == "pool" and loaded is not None:
            break
    return loaded
