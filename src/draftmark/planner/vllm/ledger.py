"""vLLM's ledger of one rank, and the risks that follow from what stays free."""

import math

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.ledger import Entry, Ledger, close
from draftmark.planner.outcome import Risk
from draftmark.planner.terms import exceeds, left_over, spread
from draftmark.planner.vllm.rank import Rank
from draftmark.planner.vllm.rules import Rules
from draftmark.units import GIB, Bytes


def ledger(one: Rank, full: Configuration, machine: Machine, rules: Rules, blocks: int) -> Ledger:
    """Where one rank's memory goes; the profiled peak is kept free for activations while serving."""
    entries = [
        Entry(account="context", bytes=one.context.bytes, why=one.context.why),
        Entry(account="communication", bytes=one.communication.bytes, why=one.communication.why),
        Entry(account="weights", bytes=one.weights.bytes, why=one.weights.why),
    ]
    if one.draft is not None:
        entries.append(Entry(account="draft weights", bytes=one.draft.bytes, why=one.draft.why))
    if one.learned.budget:
        entries.append(Entry(account="unexplained", bytes=Bytes(-one.learned.budget), why=one.learned.note or ""))
    held = blocks * one.grouping.block_bytes
    kinds = ", ".join(
        f"{group.layers} {group.spec.kind} layers of {group.block} tokens a block" for group in set(one.grouping.groups)
    )
    why = (
        f"{blocks:,} blocks x {one.grouping.block_bytes:,} B in {len(one.grouping.groups)} groups ({kinds}); "
        f"{one.requested / GIB:.2f} GiB asked for - weights - peak - libraries"
        f"{' - graphs' if rules.graphs_charged and one.graphs else ''} = {one.budget / GIB:.2f} GiB"
    )
    entries.append(Entry(account="pool", bytes=Bytes(held), why=why))
    entries.append(Entry(account="activations", bytes=one.activations.bytes, why=one.activations.why))
    if one.graphs is not None:
        entries.append(Entry(account="graphs", bytes=one.graphs.bytes, why=one.graphs.why))
    number = one.stage.number * full.parallel.tensor
    return close(rank=number, capacity=machine.device.memory, entries=tuple(entries))


def load_why(worst: Rank, total: int, *, start: float, loads: float) -> str:
    """What stands against starting: what is asked for, or where they are more than the GPU, the weights.

    Args:
        worst: the rank.
        total: the GPU's memory.
        start: bytes that are asked for beyond what is free.
        loads: bytes of weights beyond what is free.
    """
    free = f"{(total - worst.context.bytes) / GIB:.2f} GiB free"
    if loads > max(0.0, start):
        return f"{worst.weights.bytes / GIB:.2f} GiB of weights, {free}; take more GPUs or weights in fewer bits"
    return f"{worst.requested / GIB:.2f} GiB asked for, {free}"


def pool_why(worst: Rank, needed: float, context: int, *, weights_fit: bool) -> str:
    """What one request takes of the pool; where there is none, what is missing, and what would mend that."""
    if worst.budget < 0:
        remedy = "raise the utilization" if weights_fit else "take more GPUs or weights in fewer bits"
        return f"{-worst.budget / GIB:.2f} GiB are missing before the pool has anything; {remedy}"
    takes = f"one request of {context:,} tokens takes {needed / GIB:.2f} of {worst.budget / GIB:.2f} GiB"
    return f"{takes}; where that is too little, raise the utilization or shorten --max-model-len"


def risks(
    worst: Rank, full: Configuration, machine: Machine, rules: Rules, blocks: int, context: int
) -> tuple[Risk, ...]:
    """Probabilities by phase. Lack of pool asks for more utilization, lack of headroom for less."""
    total = machine.device.memory
    start = worst.requested - (total - worst.context.bytes)
    loads = worst.weights.bytes + worst.context.bytes - total
    needed = worst.grouping.request_blocks(context, full) * worst.grouping.block_bytes
    beyond = total - worst.requested - worst.context.bytes
    graphs = worst.graphs.bytes if worst.graphs is not None and not rules.graphs_charged else 0
    # Only an override allocates more blocks than the budget holds.
    more = blocks * worst.grouping.block_bytes - worst.budget - beyond if blocks > worst.blocks else -math.inf
    found = [
        Risk(
            phase="load",
            probability=max(exceeds(start, worst.context.deviation), exceeds(loads, worst.weights.deviation)),
            why=load_why(worst, total, start=start, loads=loads),
        ),
        Risk(
            phase="pool",
            probability=max(exceeds(needed - worst.budget, worst.deviation), exceeds(more, worst.deviation)),
            why=pool_why(worst, needed, context, weights_fit=loads < 0),
        ),
    ]
    if worst.graphs is not None:
        probability = exceeds(graphs - beyond - worst.activations.bytes, worst.graphs.deviation)
        where = "held within the utilization" if rules.graphs_charged else f"against {left_over(beyond)} beyond it"
        why = f"{worst.graphs.bytes / GIB:.2f} GiB of graphs {where}, and the profiled peak is free by then"
        found.append(Risk(phase="graphs", probability=probability, why=why))
    margin = beyond - graphs
    deviation = spread([worst.activations, *([worst.graphs] if worst.graphs else [])])
    why = f"the profiled peak is kept free, and {left_over(margin)} beyond; lower the utilization or the chunk"
    found.append(Risk(phase="prefill", probability=exceeds(-margin, deviation), why=why))
    return tuple(found)
