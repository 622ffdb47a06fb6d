"""One rank of vLLM: its budget, and the groups and blocks that it makes of it."""

import math

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.model import Model
from draftmark.planner import experts, layout
from draftmark.planner.draft_weights import draft_weights
from draftmark.planner.flags import whole_flag
from draftmark.planner.learn import Learned
from draftmark.planner.terms import Term, spread
from draftmark.planner.vllm import terms
from draftmark.planner.vllm.rules import Rules
from draftmark.planner.vllm.specs import Grouping, grouped, specifications
from draftmark.units import Bytes


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's budget and what it makes of it."""

    stage: layout.Stage
    context: Term
    communication: Term
    weights: Term
    draft: Term | None
    activations: Term
    graphs: Term | None
    grouping: Grouping
    requested: int
    budget: float
    deviation: float
    learned: Learned

    @property
    def blocks(self) -> int:
        """Blocks that the budget holds."""
        return max(0, int(self.budget // self.grouping.block_bytes))


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
    """One rank's budget: ceil(total x utilization) less weights, profiled peak, and memory outside torch."""
    context, communication = terms.context(full), terms.communication(full, machine.device)
    own = terms.weights(layout.rank_weights(model, full, stage, machine.device), exact=model.exact_weights)
    own = experts.explained(own, model, full, machine.device)
    drafted = draft_weights(model, full, draft, terms.weights) if stage.last else None
    peak = terms.activations(model, full, last=stage.last)
    captured = terms.graphs(full)
    total = machine.device.memory if free is None else Bytes(free + context.bytes)
    requested = math.ceil(total * (full.memory_fraction or 0))
    charged = [own, communication, peak, *([drafted] if drafted else [])]
    if captured is not None and rules.graphs_charged:
        charged.append(captured)
    if rules.context_charged:
        charged.append(context)
    fixed = fixed_pool(full)
    return Rank(
        stage=stage,
        context=context,
        communication=communication,
        weights=own,
        draft=drafted,
        activations=peak,
        graphs=captured,
        grouping=grouped(specifications(model, full, stage, draft), full),
        requested=requested,
        budget=fixed if fixed is not None else requested - sum(term.bytes for term in charged) + learned.budget,
        deviation=0.0 if fixed is not None else learned.deviation * math.hypot(spread(charged), rules.drift),
        learned=learned,
    )


def fixed_pool(full: Configuration) -> int | None:
    """`--kv-cache-memory-bytes`, which takes the place of the budget."""
    return whole_flag(full, "--kv-cache-memory-bytes")
