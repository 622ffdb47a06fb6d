"""How many more GPUs a target takes, in one sentence."""

from typing import Final

import msgspec

from draftmark.configuration import Parallel
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.planner.candidate import Candidate, Given
from draftmark.planner.layouts import laid_out, layouts
from draftmark.planner.search import hopeless, search

STAGES: Final = 4
"""Most pipeline stages that are asked for: more would wait on each other for most of the time."""
COUNTS: Final = (*range(1, 17), *range(24, 65, 8))
"""Numbers of GPUs that are tried: every one up to two hosts, then whole hosts of eight."""


def what_would(given: Given, fixed: frozenset[str]) -> str:
    """What would reach the target: another layout on the same GPUs where the user fixed one, else more GPUs.

    Args:
        given: the search that found nothing.
        fixed: fields of `Parallel` that the user set.
    """
    name, before = given.machine.device.name, given.machine.count
    if given.asked.engine == "embedded":
        return f"Nothing reaches it: the embedded engine runs on one device alone, here {name}."
    if fixed:
        best = _best(given, before)
        if best is not None:
            return f"Nothing reaches it on {before} x {name} in this layout; the same GPUs would{_with(best)}."
    for count in COUNTS:
        if count <= before or _too_small(given, count):
            continue
        best = _best(given, count)
        if best is not None:
            return f"Nothing reaches it on {before} x {name}; {count} of them would{_with(best)}."
    return f"Nothing reaches it on up to {max(before, COUNTS[-1])} x {name}, whatever the flags and the layout."


def _with(best: Candidate) -> str:
    words = ", ".join(f"{change.flag} {change.value or ''}".strip() for change in best.changes)
    return f" with {words}" if words else ""


def _too_small(given: Given, count: int) -> bool:
    """Whether the stored weights alone are more than all GPUs have."""
    plain = given.asked.quantization is not None and given.model.quantization is None
    return not plain and given.model.weight_bytes > count * given.machine.device.memory


def _best(given: Given, count: int) -> Candidate | None:
    """The best configuration on `count` of the GPUs, in any layout; None where none reaches the target safely."""
    machine = Machine(device=given.machine.device, count=count)
    # Counted from no layout at all, so that the whole of it is named.
    asked = msgspec.structs.replace(given.asked, parallel=Parallel())
    larger = msgspec.structs.replace(given, machine=machine, free=None, asked=asked, made={})
    try:
        base, _ = laid_out(given.model, asked, machine, frozenset())
    except BadInput:
        return None
    found = layouts(given.model, base, machine, frozenset(), given.target.concurrency)
    tried = [one for one in found if one.parallel.pipeline <= STAGES and not hopeless(larger, one)]
    good = [one for one in search(larger, tried) if one.good]
    return min(good, key=lambda one: one.weight, default=None)
