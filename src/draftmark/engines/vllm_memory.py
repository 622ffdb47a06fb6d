"""vLLM's memory as its log states it: a ledger for each rank, and the pool."""

from draftmark.engines.observed import by_rank, held, last_start, number
from draftmark.ledger import Entry, Ledger, Pool, close
from draftmark.observation import Observation
from draftmark.units import Bytes, Tokens


def ledgers(observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
    """One ledger for each rank of the last start, the one with the smallest pool first.

    vLLM measures what a trial run of the model took and gives the rest of its budget to the pool, so its ledger has no
    measured free memory: what nothing is known to hold is counted as free.
    """
    made = [
        ledger
        for rank, seen in by_rank(last_start(observations)).items()
        if (ledger := _ledger(rank, seen)) is not None
    ]
    return tuple(sorted(made, key=lambda ledger: ledger.amount("pool") or 0))


def pool(observations: tuple[Observation, ...]) -> Pool | None:
    """The pool of the last start; what its tokens mean depends on the version (docs/engines.md)."""
    seen = last_start(observations)
    page, blocks, tokens = (number(seen, name) for name in ("page", "blocks", "pool_tokens"))
    if tokens is None and blocks is not None and page is not None:
        tokens = blocks * page
    if tokens is None:
        return None
    sizes = [one.value for one in seen if one.quantity == "pool_bytes" and not isinstance(one.value, str)]
    return Pool(
        tokens=Tokens(int(tokens)),
        bytes=Bytes(int(min(sizes))) if sizes else None,
        page=Tokens(int(page)) if page is not None else None,
        blocks=int(blocks) if blocks is not None else None,
    )


def _ledger(rank: int, seen: list[Observation]) -> Ledger | None:
    capacity = number(seen, "capacity")
    weights = held(seen, "weights", "weights")[-1:]
    pools = held(seen, "pool_bytes", "pool")[-1:]
    if capacity is None or not weights or not pools:
        return None
    entries = [
        *_context(seen, int(capacity)),
        *_non_torch(seen, weights[0]),
        *weights,
        *_activations(seen),
        *held(seen, "graphs", "graphs")[-1:],
        *pools,
    ]
    return close(rank=rank, capacity=Bytes(int(capacity)), entries=tuple(entries))


def _context(seen: list[Observation], capacity: int) -> list[Entry]:
    """What was gone when the engine looked first: contexts, the communicator, other processes."""
    free = next((one.value for one in seen if one.quantity == "free" and not isinstance(one.value, str)), None)
    if free is None:
        return []
    return [Entry(account="context", bytes=Bytes(int(capacity - free)), why="capacity - free at the first look")]


def _non_torch(seen: list[Observation], weights: Entry) -> list[Entry]:
    """Memory outside PyTorch; since 0.30 it is stated together with the weights."""
    consumed = held(seen, "consumed", "communication")[-1:]
    if consumed:
        rest = Bytes(consumed[0].bytes - weights.bytes)
        return [Entry(account="communication", bytes=rest, why=f"consumed - weights; {consumed[0].why}")]
    return held(seen, "communication", "communication")[-1:]


def _activations(seen: list[Observation]) -> list[Entry]:
    """Peak of the trial run; since 0.30 the stated peak holds the estimate for graphs, which is taken out."""
    peak = held(seen, "peak", "activations")[-1:]
    if not peak:
        return held(seen, "activations", "activations")[-1:]
    estimated = number(seen, "graphs_estimated") or 0
    why = f"peak activation - estimated graphs; {peak[0].why}"
    return [Entry(account="activations", bytes=Bytes(int(peak[0].bytes - estimated)), why=why)]
