"""The search: every layout with every combination of dear knobs, each with as few cheap knobs as reach the target."""

from collections.abc import Iterator
from itertools import product

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.planner.candidate import Candidate, Given, rank
from draftmark.planner.combinations import broken
from draftmark.planner.fraction import HIGHEST, enough, fraction_step, needed
from draftmark.planner.knobs import cheap, dear
from draftmark.planner.layouts import Layout
from draftmark.planner.outcome import Plan
from draftmark.planner.step import Step


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """A layout and the dear knobs that are turned with it."""

    layout: Layout
    steps: tuple[Step, ...]

    @property
    def weight(self) -> float:
        """What it weighs, before any cheap knob."""
        return self.layout.weight + sum(step.weight for step in self.steps)

    @property
    def kinds(self) -> frozenset[str]:
        """What is dear about it, whatever its measure."""
        return frozenset({self.layout.name, *(step.name for step in self.steps)}) - {"own"}


def search(given: Given, layouts: list[Layout]) -> Iterator[Candidate]:
    """The best of every strategy; one that does the same as another which suffices, or more, is left out.

    Args:
        given: what is searched for; its configuration is the one that changes are counted from.
        layouts: what is tried, the configuration's own layout first.
    """
    sufficient: list[frozenset[str]] = []
    for strategy in sorted(strategies(given, layouts), key=lambda one: one.weight):
        if any(less <= strategy.kinds for less in sufficient):
            continue
        best = settle(given, strategy)
        if best is None:
            continue
        yield best
        # What needs only cheap knobs leaves dear ones in, as another way; what needs nothing leaves none.
        if best.good and (strategy.kinds or not best.changes):
            sufficient.append(strategy.kinds)


def strategies(given: Given, layouts: list[Layout]) -> Iterator[Strategy]:
    """Every layout with one step or none of every dear knob, as far as the engine can combine them."""
    for layout in layouts:
        base = msgspec.structs.replace(given.asked, parallel=layout.parallel)
        for chosen in product(*((None, *steps) for steps in dear_knobs(given, base))):
            steps = tuple(step for step in chosen if step is not None)
            wanted = moved(base, steps)
            if not broken(wanted, given.model, given.machine.device):
                yield Strategy(layout=layout, steps=steps)


def dear_knobs(given: Given, base: Configuration) -> list[list[Step]]:
    """The dear knobs of a layout; a cache that is in 8 bits by default cannot be made smaller."""
    try:
        full = given.plan(base).configuration
    except BadInput:
        return []  # A layout that cannot work is left out when it is planned.
    return dear(given.model, base, given.machine.device, cached=full.kv_dtype)


def moved(configuration: Configuration, steps: tuple[Step, ...]) -> Configuration:
    """A configuration after some steps."""
    for step in steps:
        configuration = msgspec.structs.replace(configuration, **step.fields(configuration))
    return configuration


def settle(given: Given, strategy: Strategy) -> Candidate | None:
    """The strategy without any cheap knob if that suffices, else with as few as do; None where it cannot work."""
    base = msgspec.structs.replace(given.asked, parallel=strategy.layout.parallel)
    choices = [steps for steps in cheap(given.model, base, given.target) if allowed(given, strategy, steps[-1])]
    strongest = [steps[-1] for steps in choices]
    try:
        plain = attempt(given, strategy, [])
        full = attempt(given, strategy, strongest)
    except BadInput:
        return None  # What the engine cannot serve this way is no candidate; what was asked for was planned before.
    if plain.good or not full.good:
        return min(plain, full, key=rank)
    return fewest(given, strategy, choices, full)


def allowed(given: Given, strategy: Strategy, step: Step) -> bool:
    """Whether the engine can combine a cheap step with the strategy."""
    base = msgspec.structs.replace(given.asked, parallel=strategy.layout.parallel)
    wanted = moved(base, (*strategy.steps, step))
    return not broken(wanted, given.model, given.machine.device)


def fewest(given: Given, strategy: Strategy, choices: list[list[Step]], full: Candidate) -> Candidate:
    """One cheap knob where one does, else what is left when all are turned back, the heaviest first."""
    alone = [attempt(given, strategy, [steps[-1]]) for steps in choices]
    enough_alone = [one for one in alone if one.good]
    best = full
    kept = {steps[0].name: steps[-1] for steps in choices}
    for steps in sorted(choices, key=lambda steps: -steps[-1].weight):
        name = steps[0].name
        for milder in (None, *steps[:-1]):
            tried = {**kept, name: milder} if milder is not None else {k: v for k, v in kept.items() if k != name}
            found = attempt(given, strategy, list(tried.values()))
            if found.good:
                best, kept = found, tried
                break
    return min(best, *enough_alone, key=lambda one: one.weight) if enough_alone else best


def attempt(given: Given, strategy: Strategy, steps: list[Step]) -> Candidate:
    """A strategy with some cheap steps, and with another fraction where that makes it reach the target.

    Raises:
        BadInput: the configuration cannot work.
    """
    base = msgspec.structs.replace(given.asked, parallel=strategy.layout.parallel)
    taken = (*strategy.steps, *steps)
    wanted = moved(base, taken)
    fraction = needed(given, wanted)
    if fraction is None:
        return given.candidate(strategy.layout, taken, wanted)
    step = fraction_step(given.plan(wanted), fraction)
    return given.candidate(strategy.layout, (*taken, step), moved(wanted, (step,)))


def hopeless(given: Given, layout: Layout) -> bool:
    """Whether not even everything that gains memory, at the highest fraction, gives this layout a sufficient pool."""
    wanted = msgspec.structs.replace(given.asked, parallel=layout.parallel)
    choices = (*dear_knobs(given, wanted), *cheap(given.model, wanted, given.target))
    found: Plan | None = None
    for step in (None, *(steps[-1] for steps in choices)):
        tried = wanted if step is None else moved(wanted, (step,))
        if broken(tried, given.model, given.machine.device):
            continue
        try:
            found, wanted = given.plan(tried), tried
        except BadInput:
            continue  # This step is none that the engine has here; the others may do.
    if found is None:
        return True
    highest = msgspec.structs.replace(wanted, memory_fraction=HIGHEST)
    return not enough(found) and not enough(given.plan(highest))
