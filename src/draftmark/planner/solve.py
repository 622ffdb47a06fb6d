"""Backwards: from a target to the flags that reach it, ranked by what they cost."""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.finding import Change
from draftmark.hardware import Machine
from draftmark.model import Mla, Model
from draftmark.planner.combinations import broken
from draftmark.planner.knobs import Step, knobs
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
_NEWEST: Final = {"sglang": SGLANG, "vllm": VLLM, "embedded": "0"}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration, what was changed to get there, and what that costs beside memory."""

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
) -> Solution:
    """Search the flags that matter for the pool, from the configuration as asked.

    Raises:
        BadInput: the target or the configuration cannot work at all.
    """
    check_target(target, model, configuration)
    asked = plan(model, configuration, machine, free=free, draft=draft, target=target)
    found = list(search(model, configuration, machine, target, free=free, draft=draft))
    found.sort(key=lambda one: (not one.good, one.probability < SURE, one.weight, one.plan.worst_risk))
    otherwise = None
    if not found or not found[0].good:
        otherwise = more_gpus(model, configuration, machine, target, draft=draft)
    return Solution(
        target=target,
        asked=asked,
        candidates=tuple(found[:SHOWN]),
        otherwise=otherwise,
        notes=notes(model, configuration, machine),
    )


def search(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    target: Target,
    *,
    free: Bytes | None,
    draft: Model | None,
) -> Iterator[Candidate]:
    """Every combination of steps that the engine allows, each with the least fraction that reaches the target."""
    for steps in combined(knobs(model, configuration, machine, target)):
        wanted = configuration
        for step in steps:
            wanted = msgspec.structs.replace(wanted, **step.fields(wanted))
        if broken(wanted, model, _NEWEST[wanted.engine]):
            continue
        kept = draft if wanted.speculative is not None else None
        try:
            first = plan(model, wanted, machine, free=free, draft=kept, target=target)
        except BadInput:
            continue  # A layout that cannot work is no candidate; the one that was asked for was checked before.
        yield candidate(first, steps, None)
        fraction = sufficient(first, model, machine, target, free=free, draft=kept)
        if fraction is not None:
            moved = msgspec.structs.replace(wanted, memory_fraction=fraction)
            reached = plan(model, moved, machine, free=free, draft=kept, target=target)
            yield candidate(reached, steps, fraction_step(first, fraction))


def combined(choices: list[list[Step]]) -> Iterator[tuple[Step, ...]]:
    """One step or none from each list."""
    if not choices:
        yield ()
        return
    for rest in combined(choices[1:]):
        yield rest
        for step in choices[0]:
            yield (step, *rest)


def candidate(found: Plan, steps: tuple[Step, ...], fraction: Step | None) -> Candidate:
    """A plan with what led to it."""
    taken = (*steps, *([fraction] if fraction is not None else []))
    return Candidate(
        plan=found,
        changes=tuple(change for step in taken for change in step.changes),
        costs=tuple(step.cost for step in taken if step.cost),
        weight=sum(step.weight for step in taken),
    )


def sufficient(
    first: Plan, model: Model, machine: Machine, target: Target, *, free: Bytes | None, draft: Model | None
) -> float | None:
    """The least fraction, in steps of 0.005, at which the target is reached; None where none does or none is needed.

    The pool grows linearly with the fraction, so two plans give the slope.
    """
    base, reach = first.configuration.memory_fraction, first.reach
    if base is None or reach is None or reach.probability >= SURE or reach.requests < reach.concurrency:
        return None
    probe = min(HIGHEST, base + 0.02) if base < HIGHEST else base - 0.02
    other = plan(
        model,
        msgspec.structs.replace(first.configuration, memory_fraction=probe, max_running=None)
        if first.configuration.engine == "sglang"
        else msgspec.structs.replace(first.configuration, memory_fraction=probe),
        machine,
        free=free,
        draft=draft,
        target=target,
    ).reach
    if other is None or other.available == reach.available:
        return None
    slope = (other.available - reach.available) / (probe - base)
    missing = reach.needed + 1.3 * reach.deviation - reach.available
    fraction = math.ceil((base + missing / slope) / GRAIN) * GRAIN
    return round(fraction, 3) if base < fraction <= HIGHEST else None


def fraction_step(first: Plan, fraction: float) -> Step:
    """A move of the fraction as a step."""
    flag = "--mem-fraction-static" if first.configuration.engine == "sglang" else "--gpu-memory-utilization"
    base = first.configuration.memory_fraction or 0
    held = (fraction - base) * first.device.memory / GIB
    return Step(
        name="fraction",
        changes=(Change(flag=flag, direction="raise", value=f"{fraction:.3f}"),),
        set=(("memory_fraction", fraction),),
        cost=f"{held:.2f} GiB less headroom",
        weight=1.0 + 20 * (fraction - base),
    )


def more_gpus(
    model: Model, configuration: Configuration, machine: Machine, target: Target, *, draft: Model | None
) -> str:
    """What would reach the target, in one sentence."""
    count = machine.count
    while count < 64:
        count *= 2
        larger = Machine(device=machine.device, count=count)
        layout = msgspec.structs.replace(
            configuration.parallel, tensor=configuration.parallel.tensor * count // machine.count
        )
        wanted = msgspec.structs.replace(configuration, parallel=layout)
        try:
            found = [one for one in search(model, wanted, larger, target, free=None, draft=draft) if one.good]
        except BadInput:
            break
        if found:
            best = min(found, key=lambda one: one.weight)
            with_what = ", ".join(f"{change.flag} {change.value or ''}".strip() for change in best.changes)
            also = f" with {with_what}" if with_what else ""
            return f"Nothing reaches it on {machine.count} x {machine.device.name}; {count} of them would{also}."
    return f"Nothing reaches it on up to 64 x {machine.device.name}, whatever the flags."


def notes(model: Model, configuration: Configuration, machine: Machine) -> tuple[str, ...]:
    """Where the largest gains lie for this model."""
    found = []
    latent = any(isinstance(layer.mixer, Mla) for layer in model.layers)
    if latent and configuration.parallel.tensor > 1 and not configuration.parallel.data_attention:
        found.append(
            "with latent attention every tensor-parallel GPU holds the whole latent, so more ranks do not divide it: "
            "an fp8 cache and decode context parallelism gain most"
        )
    return tuple(found)
