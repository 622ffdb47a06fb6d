"""One configuration that may reach a target: what was changed to get there, what it costs, how it ranks."""

from collections.abc import Sequence
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.finding import Change
from draftmark.hardware import Machine
from draftmark.model import Model
from draftmark.planner.layouts import Layout, as_spelled, changes
from draftmark.planner.learn import Past
from draftmark.planner.outcome import Plan
from draftmark.planner.predict import plan
from draftmark.planner.step import Step
from draftmark.planner.target import Target
from draftmark.units import Bytes

SURE: Final = 0.9
"""Probability from which a target counts as reached."""
SAFE: Final = 0.1
"""Risk of running out of memory from which a configuration is not proposed first."""

LIKELY: Final = 0.5
"""Risk from which a configuration counts as one that does not hold."""


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
    def reaches(self) -> bool:
        """Whether it starts and the target fits, be it at a risk; not where it more likely runs out of memory."""
        return self.probability >= SURE and self.plan.fits and self.plan.worst_risk < LIKELY

    @property
    def good(self) -> bool:
        """Reached, and safe in every phase."""
        return self.reaches and self.plan.worst_risk <= SAFE

    @property
    def headroom(self) -> Bytes:
        """What stays free beside activations and logits on the worst GPU."""
        return self.plan.ledgers[0].free


def rank(one: Candidate) -> tuple[bool, bool, float, float, float]:
    """Best first: good ones by what they cost; of the others, those that come nearest."""
    reach = one.plan.reach
    near = 0.0 if one.good or reach is None else -min(1.0, reach.available / reach.needed)
    return (not one.good, not one.reaches, near, one.weight, one.plan.worst_risk)


def undominated(ranked: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Without those that change all that a better one does, and more."""
    kept: list[Candidate] = []
    for one in ranked:
        changed = {(change.flag, change.value) for change in one.changes}
        if not any({(change.flag, change.value) for change in better.changes} <= changed for better in kept):
            kept.append(one)
    return tuple(kept)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same through a search. `asked` is the user's configuration; plans once made are kept."""

    model: Model
    machine: Machine
    target: Target
    asked: Configuration
    draft: Model | None = None
    free: Bytes | None = None
    history: tuple[Past, ...] = ()
    made: dict[Configuration, Plan] = msgspec.field(default_factory=dict)

    def plan(self, configuration: Configuration) -> Plan:
        """One configuration's prediction; a draft only where speculation is on.

        Raises:
            BadInput: the configuration cannot work.
        """
        found = self.made.get(configuration)
        if found is None:
            found = plan(
                self.model,
                configuration,
                self.machine,
                free=self.free,
                draft=self.draft if configuration.speculative is not None else None,
                target=self.target,
                history=self.history,
            )
            self.made[configuration] = found
        return found

    def candidate(self, layout: Layout, steps: tuple[Step, ...], asked: Configuration) -> Candidate:
        """A configuration with what led to it."""
        costs = (layout.cost, *(step.cost for step in steps))
        moved = (*changes(self.asked, layout.parallel), *(change for step in steps for change in step.changes))
        return Candidate(
            asked=asked,
            plan=self.plan(asked),
            changes=tuple(as_spelled(asked, change) for change in moved),
            costs=tuple(cost for cost in costs if cost),
            weight=layout.weight + sum(step.weight for step in steps),
        )
