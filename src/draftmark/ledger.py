"""The ledger: where one GPU's memory goes, entry by entry, adding up to its capacity."""

from typing import Literal

import msgspec

from draftmark.units import Bytes, Tokens

Account = Literal[
    "context",
    "communication",
    "weights",
    "draft weights",
    "pool",
    "draft pool",
    "state pool",
    "request tables",
    "graphs",
    "activations",
    "logits",
    "workspace",
    "unexplained",
    "free",
]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held for one purpose; `why` is the formula with its numbers, or the log line that said so."""

    account: Account
    bytes: Bytes
    why: str


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The KV slots that an engine reserves. `tokens` as that engine and version prints them; None where unsaid."""

    tokens: Tokens
    bytes: Bytes | None = None
    page: Tokens | None = None
    blocks: int | None = None
    groups: int | None = None
    low: Tokens | None = None
    """Lower and upper end of the 90 % interval, where the pool is predicted and not observed."""
    high: Tokens | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's memory. Predicted and observed memory are of this same type, so they can be laid side by side.

    Raises:
        ValueError: the entries do not add up to the capacity.
    """

    rank: int
    capacity: Bytes
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        total = sum(entry.bytes for entry in self.entries)
        if total != self.capacity:
            raise ValueError(f"the ledger's entries add up to {total} bytes, its capacity is {self.capacity}")

    def amount(self, account: Account) -> Bytes | None:
        """Bytes of all entries of one account; None where the ledger has no such entry."""
        amounts = [entry.bytes for entry in self.entries if entry.account == account]
        return Bytes(sum(amounts)) if amounts else None

    @property
    def free(self) -> Bytes:
        """What nothing holds; negative where a prediction does not fit."""
        return self.amount("free") or Bytes(0)


def close(*, rank: int, capacity: Bytes, entries: tuple[Entry, ...], free: Bytes | None = None) -> Ledger:
    """A ledger that adds up: what is left is free, or unexplained where `free` was measured and leaves a remainder."""
    spent = sum(entry.bytes for entry in entries)
    if free is None:
        closing: tuple[Entry, ...] = (
            Entry(account="free", bytes=Bytes(capacity - spent), why="capacity - everything above"),
        )
    else:
        remainder = Bytes(capacity - spent - free)
        closing = (
            Entry(account="unexplained", bytes=remainder, why="capacity - everything above - measured free memory"),
            Entry(account="free", bytes=free, why="measured"),
        )
    return Ledger(rank=rank, capacity=capacity, entries=(*entries, *closing))


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One account, predicted beside observed; None where that side's ledger has no such entry."""

    account: Account
    predicted: Bytes | None
    observed: Bytes | None

    @property
    def delta(self) -> Bytes | None:
        """Observed less predicted, where both are known."""
        if self.predicted is None or self.observed is None:
            return None
        return Bytes(self.observed - self.predicted)


def compare(predicted: Ledger, observed: Ledger) -> tuple[Difference, ...]:
    """Both ledgers account by account, in the order in which they name them."""
    accounts = dict.fromkeys(entry.account for ledger in (predicted, observed) for entry in ledger.entries)
    return tuple(
        Difference(account=account, predicted=predicted.amount(account), observed=observed.amount(account))
        for account in accounts
    )
