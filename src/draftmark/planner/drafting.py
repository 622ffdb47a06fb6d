"""Speculation by the draft layers that lie in the checkpoint itself, where the user asked for none."""

from typing import Final

import msgspec

from draftmark.configuration import Speculative
from draftmark.engines.offered import or_newest
from draftmark.engines.versions import parse_version
from draftmark.errors import BadInput
from draftmark.finding import Change
from draftmark.planner.candidate import Candidate, Given
from draftmark.planner.combinations import broken
from draftmark.planner.fraction import fraction_step, needed
from draftmark.planner.sglang.defaults import SPECULATIVE_RUNNING
from draftmark.planner.step import Step

ARCHITECTURES: Final = {
    "sglang": ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
    "vllm": (
        "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM",
        "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
    ),
}  # fmt: skip
"""Whose own layers the engine drafts with when told no other model: sglang 0.5.15.post1, speculative_hook.py
(_handle_eagle_family); vllm 0.32.0, config/speculative.py (MTPModelTypes)."""
SINCE: Final = {"sglang": "0.5.15", "vllm": "0.32"}
"""First version read with it."""


def step(given: Given) -> Step | None:
    """The step that turns them on; None where there are none, or where the engine is not known to use them."""
    asked, model = given.asked, given.model
    if asked.engine == "embedded" or asked.speculative is not None or not model.draft_layers:
        return None
    version = parse_version(or_newest(asked.engine, asked.version))
    if model.architecture not in ARCHITECTURES[asked.engine] or version < parse_version(SINCE[asked.engine]):
        return None
    if asked.engine == "vllm":
        draft = Speculative(algorithm="mtp", draft_tokens=1)
        change = Change(
            flag="--speculative-config", direction="set", value='{"method": "mtp", "num_speculative_tokens": 1}'
        )
    else:
        draft = Speculative(algorithm="EAGLE")
        change = Change(flag="--speculative-algorithm", direction="set", value="EAGLE")
    return Step(name="draft", changes=(change,), set=(("speculative", draft),), cost="memory for the draft", weight=0.0)


def drafted(given: Given, first: Candidate) -> Candidate | None:
    """The first configuration with them turned on; None where that does not reach the target safely."""
    found = step(given)
    if found is None:
        return None
    steps = [found]
    most = given.target.concurrency
    if given.asked.engine == "sglang" and first.asked.max_running is None and most > SPECULATIVE_RUNNING:
        change = Change(flag="--max-running-requests", direction="set", value=str(most))
        cost = f"at most {most} requests at once"
        steps.append(Step(name="requests", changes=(change,), set=(("max_running", most),), cost=cost, weight=0.8))
    wanted = first.asked
    for one in steps:
        wanted = msgspec.structs.replace(wanted, **one.fields(wanted))
    if broken(wanted, given.model, given.machine.device):
        return None
    try:
        fraction = needed(given, wanted)
    except BadInput:
        return None  # The engine cannot serve it this way.
    if fraction is not None:
        steps.append(fraction_step(given.plan(wanted), fraction))
        wanted = msgspec.structs.replace(wanted, memory_fraction=fraction)
    made = Candidate(
        asked=wanted,
        plan=given.plan(wanted),
        changes=tuple(change for one in steps for change in one.changes),
        costs=tuple(one.cost for one in steps if one.cost),
        weight=first.weight + sum(one.weight for one in steps),
    )
    return made if made.good else None
