"""One rank of SGLang: what it holds before the pool is sized, its budget, and the pools it makes of it."""

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.model import Model
from draftmark.physics.memory import kv_heads_of, weight_bytes
from draftmark.planner import experts, layout
from draftmark.planner.draft_weights import draft_weights
from draftmark.planner.learn import Learned
from draftmark.planner.sglang import terms
from draftmark.planner.sglang.cells import Cells, States, cells, states
from draftmark.planner.sglang.pools import Pools, divide, multimodal_reserve
from draftmark.planner.sglang.rules import Rules
from draftmark.planner.terms import Term, spread
from draftmark.units import Bytes


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's quantities before the pool is sized, and its pools."""

    stage: layout.Stage
    context: Term
    communication: Term | None
    weights: Term
    draft: Term | None
    returned: Bytes
    """Of the draft's weights, what is given back once the pool is sized: it then reads the target's."""
    unattributed: Term
    cells: Cells
    states: States | None
    before: float
    budget: float
    deviation: float
    pools: Pools
    learned: Learned


def rank(
    model: Model,
    full: Configuration,
    machine: Machine,
    stage: layout.Stage,
    rules: Rules,
    *,
    free: Bytes | None,
    draft: Model | None,
    learned: Learned,
) -> Rank:
    """The quantities of one rank of a stage."""
    context, communication = terms.context(), terms.communication(full, machine.device)
    before = float(free if free is not None else machine.device.memory - context.bytes)
    before -= communication.bytes if communication else 0
    own = terms.weights(layout.rank_weights(model, full, stage, machine.device), exact=model.exact_weights)
    own = experts.explained(own, model, full, machine.device)
    drafted = draft_weights(model, full, draft, terms.weights) if stage.last else None
    counted = drafted.bytes if drafted is not None and rules.draft_counted else 0
    rest = terms.unattributed()
    slack = before * (1 - (full.memory_fraction or 0))
    budget = before - own.bytes - counted - rest.bytes - slack - multimodal_reserve(rules, vision=model.vision)
    budget += learned.budget
    found, held = cells(model, full, stage, rules, draft), states(model, full, stage)
    machine_terms = [context, *([communication] if communication else [])]
    deviation = spread([own, rest, *([drafted] if drafted else [])])
    return Rank(
        stage=stage,
        context=context,
        communication=communication,
        weights=own,
        draft=drafted,
        returned=shared_with_target(model, full, draft) if drafted is not None else Bytes(0),
        unattributed=rest,
        cells=found,
        states=held,
        before=before,
        budget=budget,
        # What is missing before the start lowers the budget only by the fraction.
        deviation=learned.deviation
        * (deviation**2 + ((full.memory_fraction or 0) * spread(machine_terms)) ** 2 + rules.drift**2) ** 0.5,
        learned=learned,
        pools=divide(budget, found, held, full, rules),
    )


def shared_with_target(model: Model, full: Configuration, draft: Model | None) -> Bytes:
    """What an EAGLE draft model gives back on one rank: its embedding, and but for EAGLE-3 its head.

    0.5.15.post1, eagle_worker_v2.py (init_lm_head) and models/llama.py (set_embed, set_embed_and_head), after the pools
    are made; a Llama-3.1-8B with an EAGLE-3 draft had 0.98 GiB of embedding back, and 0.88 GiB more free.
    """
    algorithm = full.speculative.algorithm.upper() if full.speculative is not None else ""
    if draft is None or algorithm not in ("EAGLE", "EAGLE3") or draft.hidden_size != model.hidden_size:
        return Bytes(0)
    roles = ("embedding",) if algorithm == "EAGLE3" else ("embedding", "head")
    groups = tuple(group for group in draft.weights if group.role in roles)
    return weight_bytes(groups, full.parallel.tensor, kv_heads_of(draft))
