"""Backwards: from a target to the flags that reach it, ranked by what they cost."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.finding import Change
from draftmark.hardware import Machine
from draftmark.model import Mla, Model
from draftmark.planner.combinations import broken
from draftmark.planner.knobs import Step, knobs
from draftmark.planner.learn import Past
from draftmark.planner.outcome import Plan
from draftmark.planner.predict import plan
from draftmark.planner.sglang.rules import NEWEST as SGLANG
from draftmark.planner.target import Target, check_target
from draftmark.planner.vllm.rules import NEWEST as VLLM
from draftmark.units import GIB, Bytes

SURE: Final = 0.9
"""Probability from which a target counts as reached."""
SAFE: Final = 0.1
"""Risk of running out of memory from which a configuration is not proposed first."""
HIGHEST: Final = 0.985
"""Largest fraction that is tried."""
GRAIN: Final = 0.005
SHOWN: Final = 8
MOST_GPUS: Final = 64
_NEWEST: Final = {"sglang": SGLANG, "vllm": VLLM, "embedded": "0"}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration, what was changed to get there, and what that costs beside memory."""

    asked: Configuration
    """The user's configuration with the changes, defaults left to the engine."""
    plan: Plan
    changes: tuple[Change, ...]
    costs: tuple[str, ...]
    weight: float
    """Sum of the changes' weights: how much a user gives up; smaller is better."""

    @property
    def probability(self) -> float:
        """That the target fits."""
        return self.plan.reach.probability if self.plan.reach is not None else 0.0

    @property
    def good(self) -> bool:
        """Reached, and safe in every phase."""
        return self.probability >= SURE and self.plan.worst_risk <= SAFE

    @property
    def headroom(self) -> Bytes:
        """What stays free beside activations and logits on the worst GPU."""
        return self.plan.ledgers[0].free


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """What reaches the target, best first; where nothing does, `otherwise` says what would."""

    target: Target
    asked: Plan
    candidates: tuple[Candidate, ...]
    otherwise: str | None
    notes: tuple[str, ...]

    @property
    def first(self) -> Candidate | None:
        """The one to launch first; None where nothing reaches the target."""
        return self.candidates[0] if self.candidates and self.candidates[0].good else None


def solve(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    target: Target,
    *,
    free: Bytes | None = None,
    draft: Model | None = None,
    history: Sequence[Past] = (),
) -> Solution:
    """Search the flags that matter for the pool, from the configuration as asked.

    Raises:
        BadInput: the target or the configuration cannot work at all.
    """
    check_target(target, model, configuration)
    given = Given(model=model, machine=machine, target=target, free=free, history=tuple(history))
    asked = given.plan(configuration, draft)
    found = list(search(given, configuration, draft))
    found.sort(key=rank)
    otherwise = None
    if not found or not found[0].good:
        otherwise = more_gpus(given, configuration, draft)
    return Solution(
        target=target,
        asked=asked,
        candidates=tuple(undominated(found)[:SHOWN]),
        otherwise=otherwise,
        notes=notes(model, configuration),
    )


def rank(one: Candidate) -> tuple[bool, bool, float, float, float]:
    """Best first: good ones by what they cost; of the others, those that come nearest."""
    reach = one.plan.reach
    near = 0.0 if one.good or reach is None else -min(1.0, reach.available / reach.needed)
    return (not one.good, one.probability < SURE, near, one.weight, one.plan.worst_risk)


def undominated(ranked: list[Candidate]) -> list[Candidate]:
    """Without those that change more than a better one does, to no gain: all of its changes and others beside."""
    kept: list[Candidate] = []
    for one in ranked:
        changes = {(change.flag, change.value) for change in one.changes}
        worse = (
            {(change.flag, change.value) for change in better.changes} <= changes and rank(better) <= rank(one)
            for better in kept
        )
        if not any(worse):
            kept.append(one)
    return kept


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same through a search."""

    model: Model
    machine: Machine
    target: Target
    free: Bytes | None = None
    history: tuple[Past, ...] = ()

    def plan(self, configuration: Configuration, draft: Model | None) -> Plan:
        """One configuration's prediction; a draft only where speculation is on."""
        kept = draft if configuration.speculative is not None else None
        return plan(
            self.model,
            configuration,
            self.machine,
            free=self.free,
            draft=kept,
            target=self.target,
            history=self.history,
        )


def search(given: Given, configuration: Configuration, draft: Model | None) -> Iterator[Candidate]:
    """Every combination of steps that the engine allows, each with the least fraction that reaches the target."""
    for steps in combined(knobs(given.model, configuration, given.target)):
        wanted = configuration
        for step in steps:
            wanted = msgspec.structs.replace(wanted, **step.fields(wanted))
        if broken(wanted, given.model, _NEWEST[wanted.engine]):
            continue
        try:
            first = given.plan(wanted, draft)
        except BadInput:
            continue  # A layout that cannot work is no candidate; the one that was asked for was checked before.
        yield candidate(wanted, first, steps, None)
        fraction = sufficient(given, wanted, first, draft)
        if fraction is not None and first.reach is not None and first.reach.probability >= SURE:
            fraction = highest_safe(given, wanted, draft, low=fraction, high=first.configuration.memory_fraction or 0)
        if fraction is not None:
            moved = msgspec.structs.replace(wanted, memory_fraction=fraction)
            yield candidate(moved, given.plan(moved, draft), steps, fraction_step(first, fraction))


def combined(choices: list[list[Step]]) -> Iterator[tuple[Step, ...]]:
    """One step or none from each list."""
    if not choices:
        yield ()
        return
    for rest in combined(choices[1:]):
        yield rest
        for step in choices[0]:
            yield (step, *rest)


def candidate(asked: Configuration, found: Plan, steps: tuple[Step, ...], fraction: Step | None) -> Candidate:
    """A plan with what led to it."""
    taken = (*steps, *([fraction] if fraction is not None else []))
    return Candidate(
        asked=asked,
        plan=found,
        changes=tuple(change for step in taken for change in step.changes),
        costs=tuple(step.cost for step in taken if step.cost),
        weight=sum(step.weight for step in taken),
    )


def sufficient(given: Given, wanted: Configuration, first: Plan, draft: Model | None) -> float | None:
    """The least fraction, in steps of 0.005, at which the target is reached; None where none does or none is needed.

    The pool grows linearly with the fraction, so two plans give the slope. A pool that is large enough already wants
    another fraction only where the headroom beside it is too small: a lower one, the classic mistake's other side.
    """
    base, reach = first.configuration.memory_fraction, first.reach
    if base is None or reach is None or reach.requests < reach.concurrency:
        return None
    reached = reach.probability >= SURE
    if reached and first.worst_risk <= SAFE:
        return None
    probe = base + 0.02 if base + 0.02 <= HIGHEST else base - 0.02
    other = given.plan(msgspec.structs.replace(wanted, memory_fraction=probe), draft).reach
    if other is None or other.available == reach.available:
        return None
    slope = (other.available - reach.available) / (probe - base)
    missing = reach.needed + 1.3 * reach.deviation - reach.available
    fraction = math.ceil((base + missing / slope) / GRAIN) * GRAIN
    useful = 0 < fraction < base if reached else base < fraction <= HIGHEST
    return round(fraction, 3) if useful else None


def highest_safe(given: Given, wanted: Configuration, draft: Model | None, *, low: float, high: float) -> float | None:
    """The highest fraction in [low, high) without a risk, to a step of 0.005; None where not even `low` is safe."""

    def safe(fraction: float) -> bool:
        return given.plan(msgspec.structs.replace(wanted, memory_fraction=fraction), draft).worst_risk <= SAFE

    if not safe(low):
        return None
    while high - low > GRAIN:
        middle = round((low + high) / 2, 3)
        low, high = (middle, high) if safe(middle) else (low, middle)
    return low


def fraction_step(first: Plan, fraction: float) -> Step:
    """A move of the fraction as a step."""
    flag = "--mem-fraction-static" if first.configuration.engine == "sglang" else "--gpu-memory-utilization"
    base = first.configuration.memory_fraction or 0
    moved = abs(fraction - base) * first.device.memory / GIB
    higher = fraction > base
    return Step(
        name="fraction",
        changes=(Change(flag=flag, direction="raise" if higher else "lower", value=f"{fraction:.3f}"),),
        set=(("memory_fraction", fraction),),
        cost=f"{moved:.2f} GiB less {'headroom' if higher else 'pool'}",
        weight=1.0 + 20 * abs(fraction - base),
    )


def more_gpus(given: Given, configuration: Configuration, draft: Model | None) -> str:
    """What would reach the target, in one sentence."""
    device, before = given.machine.device, given.machine.count
    count = before
    while count < MOST_GPUS:
        count *= 2
        ranks = configuration.parallel.tensor * count // before
        layout = msgspec.structs.replace(configuration.parallel, tensor=ranks)
        larger = msgspec.structs.replace(given, machine=Machine(device=device, count=count), free=None)
        wanted = msgspec.structs.replace(configuration, parallel=layout)
        good = [one for one in search(larger, wanted, draft) if one.good]
        if good:
            best = min(good, key=lambda one: one.weight)
            with_what = ", ".join(f"{change.flag} {change.value or ''}".strip() for change in best.changes)
            also = f" with {with_what}" if with_what else ""
            return f"Nothing reaches it on {before} x {device.name}; {count} of them would{also}."
    return f"Nothing reaches it on up to {count} x {device.name} that this layout can use, whatever the flags."


def notes(model: Model, configuration: Configuration) -> tuple[str, ...]:
    """Where the largest gains lie for this model."""
    found = []
    latent = any(isinstance(layer.mixer, Mla) for layer in model.layers)
    if latent and configuration.parallel.tensor > 1 and not configuration.parallel.data_attention:
        found.append(
            "with latent attention every tensor-parallel GPU holds the whole latent, so more ranks do not divide it: "
            "an fp8 cache and decode context parallelism gain most"
        )
    return tuple(found)
