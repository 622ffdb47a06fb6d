"""Backwards: from a target to the flags that reach it, ranked by what they cost."""

from collections.abc import Sequence
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.model import Mla, Model
from draftmark.planner.candidate import SAFE, Candidate, Given, rank, undominated
from draftmark.planner.combinations import broken
from draftmark.planner.drafting import drafted
from draftmark.planner.layouts import laid_out, layouts
from draftmark.planner.learn import Past
from draftmark.planner.more import what_would
from draftmark.planner.outcome import Plan
from draftmark.planner.search import search
from draftmark.planner.target import Target, check_target
from draftmark.units import Bytes

SHOWN: Final = 8


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """What reaches the target, best first, then what does not; where nothing does, `otherwise` says what would."""

    target: Target
    asked: Plan
    candidates: tuple[Candidate, ...]
    otherwise: str | None
    notes: tuple[str, ...]
    drafted: Candidate | None = None
    """The first one with speculation by the checkpoint's own draft layers, where that reaches the target, too; its
    changes are counted from the first one."""

    @property
    def first(self) -> Candidate | None:
        """The one to launch first; None where nothing reaches the target."""
        return self.candidates[0] if self.candidates and self.candidates[0].good else None

    @property
    def shown(self) -> tuple[Candidate, ...]:
        """Those worth a user's time: safe ones, or where there are none, those that start and reach it at a risk."""
        good = tuple(one for one in self.candidates if one.good)
        return undominated(good or tuple(one for one in self.candidates if one.reaches))[:SHOWN]

    @property
    def nearest(self) -> Candidate | None:
        """The one that starts and comes nearest, where none reaches it; None where one does, or none starts."""
        if any(one.reaches for one in self.candidates):
            return None
        return next((one for one in self.candidates if one.plan.fits and one.plan.worst_risk <= SAFE), None)

    @property
    def short(self) -> int:
        """How many of the configurations that were tried do not start or do not reach the target."""
        return sum(not one.reaches for one in self.candidates)


def solve(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    target: Target,
    *,
    fixed: frozenset[str] = frozenset(),
    free: Bytes | None = None,
    draft: Model | None = None,
    history: Sequence[Past] = (),
) -> Solution:
    """Search layouts and flags that matter for the pool, from the configuration as asked.

    `fixed` are fields of `Parallel` that the user set: they stay as they are. Other flags that the user gave may be
    moved, for they may be what the target fails by.

    Raises:
        BadInput: the target or the configuration cannot work at all.
    """
    check_target(target, model, configuration)
    given = Given(
        model=model, machine=machine, target=target, asked=configuration, draft=draft, free=free, history=tuple(history)
    )
    asked = given.plan(configuration)
    wide, _ = laid_out(model, configuration, machine, fixed)
    tried = layouts(model, configuration, machine, fixed, target.concurrency)
    if wide.parallel != configuration.parallel:
        tried = [one for one in tried if one.parallel != wide.parallel]
        tried.insert(1, msgspec.structs.replace(tried[0], parallel=wide.parallel, weight=0.5))
    found = sorted(search(given, tried), key=rank)
    first = found[0] if found and found[0].good else None
    return Solution(
        target=target,
        asked=asked,
        candidates=tuple(found),
        otherwise=what_would(given, fixed) if first is None else None,
        notes=notes(given, asked),
        drafted=drafted(given, first) if first is not None else None,
    )


def notes(given: Given, asked: Plan) -> tuple[str, ...]:
    """Where the largest gains lie for this model: with latents not in more ranks."""
    parallel = asked.configuration.parallel
    latent = any(isinstance(layer.mixer, Mla) for layer in given.model.layers)
    if not latent or parallel.tensor == 1 or parallel.data_attention:
        return ()
    shared = msgspec.structs.replace(given.asked, parallel=msgspec.structs.replace(parallel, decode_context=2))
    gains = []
    if not (asked.configuration.kv_dtype or "").startswith("fp8"):
        gains.append("an fp8 cache")
    if parallel.decode_context == 1 and not broken(shared, given.model, given.machine.device):
        gains.append("decode context parallelism")
    most = f"; {' and '.join(gains)} gain{'s' if len(gains) == 1 else ''} most" if gains else ""
    return (
        "with latent attention every tensor-parallel GPU holds the whole latent, so more ranks do not divide it" + most,
    )
