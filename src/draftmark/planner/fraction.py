"""The memory fraction that a configuration needs for a target: a higher one for the pool, a lower one for headroom."""

from collections.abc import Callable
from typing import Final

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.finding import Change
from draftmark.planner.candidate import LIKELY, SAFE, SURE, Given
from draftmark.planner.outcome import Plan
from draftmark.planner.step import Step
from draftmark.units import GIB

HIGHEST: Final = 0.985
"""Largest fraction that is tried."""
DEEPEST: Final = 0.3
"""How far below the engine's own choice a fraction is tried."""
GRAIN: Final = 0.005
FLAGS: Final[dict[EngineName, str]] = {
    "embedded": "--mem-fraction",
    "sglang": "--mem-fraction-static",
    "vllm": "--gpu-memory-utilization",
}
_STARTING: Final = ("load", "pool")
"""Phases that ask for a higher fraction; the others ask for a lower one."""


def enough(found: Plan) -> bool:
    """Whether the pool holds the target, and the engine starts with it."""
    risks = (risk.probability for risk in found.risks if risk.phase in _STARTING)
    return found.reach is not None and found.reach.probability >= SURE and max(risks, default=0.0) <= SAFE


def calm(found: Plan) -> bool:
    """Whether what the pool leaves is enough for graphs, prefill and decode."""
    risks = (risk.probability for risk in found.risks if risk.phase not in _STARTING)
    return max(risks, default=0.0) <= SAFE


def needed(given: Given, wanted: Configuration) -> float | None:
    """The fraction to set, on a grid of 0.005; None where none is needed, or none helps.

    The pool grows with the fraction and the headroom shrinks. Too small a pool takes the least fraction that is
    enough; too little headroom the highest one that is calm, if the pool stays enough: the classic mistake's two sides.
    Where what is enough would more likely run out of memory, or nothing is enough, it is the highest calm one that
    comes nearest.
    """
    base = given.plan(wanted)
    start = base.configuration.memory_fraction
    if start is None or (enough(base) and calm(base)):
        return None

    def holds(rule: Callable[[Plan], bool], fraction: float) -> bool:
        return rule(given.plan(msgspec.structs.replace(wanted, memory_fraction=fraction)))

    steps = int((HIGHEST - start) / GRAIN)
    if not enough(base):
        grid = [round(start + GRAIN * number, 3) for number in range(1, steps + 1)]
        found = _first(grid, lambda fraction: holds(enough, fraction))
        if found is not None and holds(lambda plan: plan.worst_risk < LIKELY, found):
            return found
        return _first(grid[::-1], lambda fraction: holds(calm, fraction))
    grid = [round(start - GRAIN * number, 3) for number in range(1, int(min(DEEPEST, start) / GRAIN))]
    found = _first(grid, lambda fraction: holds(calm, fraction))
    return found if found is not None and holds(enough, found) else None


def _first(grid: list[float], rule: Callable[[float], bool]) -> float | None:
    """The first value that fulfils a rule which all later ones fulfil, too; None where the last one does not."""
    if not grid or not rule(grid[-1]):
        return None
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if rule(grid[middle]) else (middle + 1, high)
    return grid[low]


def fraction_step(base: Plan, fraction: float) -> Step:
    """A move of the fraction as a step."""
    flag = FLAGS[base.configuration.engine]
    start = base.configuration.memory_fraction or 0
    moved = abs(fraction - start) * base.device.memory / GIB
    higher = fraction > start
    return Step(
        name="fraction",
        changes=(Change(flag=flag, direction="raise" if higher else "lower", value=f"{fraction:.3f}"),),
        set=(("memory_fraction", fraction),),
        cost=f"{moved:.2f} GiB less {'headroom' if higher else 'pool'}",
        weight=1.0 + min(4.0, 20 * abs(fraction - start)),
    )
