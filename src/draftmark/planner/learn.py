"""Learning: what past starts had, against what was predicted for them, corrects the next prediction.

A start's pool differs from its prediction by what the uncertain terms missed together: activations, libraries,
weights, whatever nobody attributed. The next start is expected to miss by some of the same, the more the nearer it is.
Normal errors throughout: the prior is the prediction's own deviation, each past start a measurement of the same miss
with a noise that grows with its distance.
"""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from draftmark.configuration import Configuration, Parallel
from draftmark.engines.versions import parse_version
from draftmark.ledger import Account, Ledger
from draftmark.machine.catalogue import catalogue, plain
from draftmark.model import Model
from draftmark.units import GIB, Bytes

SAME_MODEL: Final = 0.15
"""Noise of a start of the same model with other flags, in deviations of the prediction."""
SAME_ARCHITECTURE: Final = 0.6
SAME_DEVICE: Final = 1.2
OTHER_VERSION: Final = 1.5
"""Factor of the noise where the engine's version differs."""
OTHER_LAYOUT: Final = 4.0
"""Factor where the model lies on the GPUs in another way: communication is another."""
OTHER_DRAFT: Final = 4.0
"""Factor where speculation differs: a draft brings weights and pools of its own."""
_POOLS: Final[tuple[Account, ...]] = ("pool", "draft pool", "state pool")


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One start that was both predicted and observed, on the rank that set the pool."""

    engine: str
    version: str | None
    device: str | None
    architecture: str
    model: str
    parallel: Parallel
    predicted: Ledger
    observed: Ledger
    speculation: str | None = None
    """The algorithm; None where it had none."""

    @property
    def missed(self) -> Bytes | None:
        """Bytes that the pools had beyond the prediction; None where the log did not say."""
        ledgers = (self.predicted, self.observed)
        pools = [[ledger.amount(account) for account in _POOLS] for ledger in ledgers]
        if any(all(amount is None for amount in amounts) for amounts in pools):
            return None
        before, after = (sum(amount or 0 for amount in amounts) for amounts in pools)
        return Bytes(after - before)

    @property
    def graphs(self) -> float | None:
        """Observed graphs over predicted ones."""
        before, after = self.predicted.amount("graphs"), self.observed.amount("graphs")
        return after / before if before and after is not None and after > 0 else None


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What past starts say about the next: bytes to add to the budget, and what is left of its deviation."""

    budget: Bytes = Bytes(0)
    deviation: float = 1.0
    graphs: float = 1.0
    """Factor of the graphs' size."""
    starts: int = 0

    @property
    def note(self) -> str | None:
        """What was learned, in words; None where nothing was."""
        if not self.starts:
            return None
        counted = "one past start" if self.starts == 1 else f"{self.starts} past starts"
        return f"{counted} of this engine on this GPU move the budget by {self.budget / GIB:+.2f} GiB"


NOTHING: Final = Learned()


def same_device(one: str | None, two: str) -> bool:
    """Whether two names are of the same GPU: drivers and catalogues write them differently."""
    if one is None:
        return False
    names = [catalogue()[plain(name)].name if plain(name) in catalogue() else plain(name) for name in (one, two)]
    return names[0] == names[1]


def noise(past: Past, configuration: Configuration, device: str, model: Model) -> float | None:
    """How far a past start is from the next one, in deviations; None where it says nothing."""
    if past.engine != configuration.engine or not same_device(past.device, device):
        return None
    if past.model == model.name:
        distance = SAME_MODEL
    elif past.architecture == model.architecture:
        distance = SAME_ARCHITECTURE
    else:
        distance = SAME_DEVICE
    known = past.version is not None and configuration.version is not None
    if not known or parse_version(past.version or "0") != parse_version(configuration.version or "0"):
        distance *= OTHER_VERSION
    if past.parallel != configuration.parallel:
        distance *= OTHER_LAYOUT
    speculative = configuration.speculative
    if past.speculation != (speculative.algorithm if speculative is not None else None):
        distance *= OTHER_DRAFT
    return distance


def learn(history: Iterable[Past], configuration: Configuration, device: str, model: Model) -> Learned:
    """What `history` says about starting `configuration` of `model` on `device`."""
    precision, total, starts = 1.0, 0.0, 0
    ratios: list[tuple[float, float]] = []
    for past in history:
        distance, missed = noise(past, configuration, device, model), past.missed
        if distance is None or missed is None:
            continue
        weight = 1 / distance**2
        precision += weight
        total += weight * missed
        starts += 1
        if past.graphs is not None:
            ratios.append((weight, math.log(past.graphs)))
    graphs = math.exp(sum(w * r for w, r in ratios) / (1 + sum(w for w, _ in ratios))) if ratios else 1.0
    return Learned(
        budget=Bytes(round(total / precision)), deviation=1 / math.sqrt(precision), graphs=graphs, starts=starts
    )
