"""SGLang's ledger of one rank, and the risks that follow from what stays free."""

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.ledger import Entry, Ledger, close
from draftmark.model import Model
from draftmark.planner.combinations import expandable
from draftmark.planner.outcome import Risk
from draftmark.planner.sglang import terms
from draftmark.planner.sglang.graphs import graphs
from draftmark.planner.sglang.pools import Pools, divide, request_table
from draftmark.planner.sglang.rank import Rank
from draftmark.planner.sglang.rules import Rules
from draftmark.planner.terms import Term, exceeds, left_over, spread
from draftmark.units import GIB, Bytes


def ledger(one: Rank, model: Model, full: Configuration, machine: Machine, rules: Rules) -> Ledger:
    """Where one rank's memory goes when the server is ready and prefills its first full chunk."""
    pools = divide(one.budget, one.cells, one.states, full, rules)
    held = machine.device.memory - one.before - (one.communication.bytes if one.communication else 0)
    entries = [Entry(account="context", bytes=Bytes(round(held)), why=one.context.why)]
    if one.communication is not None:
        entries.append(Entry(account="communication", bytes=one.communication.bytes, why=one.communication.why))
    entries.append(Entry(account="weights", bytes=one.weights.bytes, why=one.weights.why))
    if one.draft is not None:
        why = one.draft.why
        if one.returned:
            why += (
                f"; {one.returned / GIB:.2f} GiB are given back after the pool is sized, as it then reads the target's"
            )
        entries.append(Entry(account="draft weights", bytes=Bytes(one.draft.bytes - one.returned), why=why))
    if one.learned.budget:
        entries.append(Entry(account="unexplained", bytes=Bytes(-one.learned.budget), why=one.learned.note or ""))
    entries += pool_entries(one, pools, full)
    running = full.max_running or 0
    context = full.context or model.context
    table = request_table(running, context, full)
    why = f"({running:,} running requests + 1) x {context:,} tokens of context x 4 B, outside the budget"
    entries.append(Entry(account="request tables", bytes=Bytes(table), why=why))
    captured = captured_graphs(one, model, full, machine, rules)
    if captured is not None:
        entries.append(Entry(account="graphs", bytes=captured.bytes, why=captured.why))
    step = terms.activations(model, full, rules)
    entries.append(Entry(account="activations", bytes=step.bytes, why=step.why))
    rows = terms.logits(model, full)
    entries.append(Entry(account="logits", bytes=rows.bytes, why=rows.why))
    return close(rank=one.stage.number * full.parallel.tensor, capacity=machine.device.memory, entries=tuple(entries))


def captured_graphs(one: Rank, model: Model, full: Configuration, machine: Machine, rules: Rules) -> Term | None:
    """The graphs, scaled by what past starts had."""
    captured = graphs(model, full, rules, machine.device)
    if captured is None or not one.learned.starts:
        return captured
    factor = one.learned.graphs
    return msgspec.structs.replace(
        captured,
        bytes=Bytes(round(captured.bytes * factor)),
        deviation=captured.deviation * factor * one.learned.deviation,
        why=f"{captured.why}; x {factor:.2f} learned",
    )


def pool_entries(one: Rank, pools: Pools, full: Configuration) -> list[Entry]:
    """Pools of keys and values, of the draft, and of recurrent states."""
    budget = (
        f"{one.before / GIB:.2f} GiB free before the weights x {full.memory_fraction:.3f} - weights = "
        f"{one.budget / GIB:.2f} GiB"
    )
    entries = []
    if pools.state_slots is not None and one.states is not None:
        why = f"{pools.state_slots:,} slots x {one.states.slot:,} B, {one.states.ratio:g} of what keys and values get"
        entries.append(Entry(account="state pool", bytes=Bytes(pools.state_bytes), why=why))
    per = one.cells.stored - one.cells.draft
    window = ""
    if pools.windowed_tokens is not None:
        window = f"; windowed layers hold {pools.windowed_tokens:,}"
    entries.append(
        Entry(
            account="pool",
            bytes=Bytes(pools.bytes),
            why=f"{pools.tokens:,} tokens x {per:,.0f} B and a padding page{window}; {budget}",
        )
    )
    if pools.draft_bytes:
        why = f"{pools.tokens:,} tokens x {one.cells.draft:,} B of the draft's layers"
        entries.append(Entry(account="draft pool", bytes=Bytes(pools.draft_bytes), why=why))
    return entries


def pool_why(worst: Rank, load: float) -> str:
    """What is left for the pool, and what to do where that is too little; no fraction makes weights smaller."""
    if worst.budget >= 0:
        return f"{worst.budget / GIB:.2f} GiB are left for the pool; where that is too little, raise the fraction"
    remedy = "raise the fraction" if load < 0 else "take more GPUs or weights in fewer bits"
    return f"{-worst.budget / GIB:.2f} GiB are missing before the pool has anything; {remedy}"


def risks(
    worst: Rank, found: Ledger, model: Model, full: Configuration, machine: Machine, rules: Rules
) -> tuple[Risk, ...]:
    """Probabilities by phase. Lack of pool asks for a higher fraction, lack of headroom for a lower one."""
    loaded = worst.weights.bytes + (worst.draft.bytes if worst.draft else 0)
    load = loaded - worst.before
    found_risks = [
        Risk(
            phase="load",
            probability=exceeds(load, spread([worst.weights, worst.context])),
            why=f"{loaded / GIB:.2f} GiB of weights against {worst.before / GIB:.2f} GiB free on each GPU",
        ),
        Risk(
            phase="pool",
            probability=exceeds(-worst.budget, worst.deviation),
            why=pool_why(worst, load),
        ),
    ]
    step, rows, captured = (
        terms.activations(model, full, rules),
        terms.logits(model, full),
        graphs(model, full, rules, machine.device),
    )
    passing = [step, rows]
    left = float(found.free + step.bytes + rows.bytes)
    if captured is not None:
        why = f"{captured.bytes / GIB:.2f} GiB of graphs against {left_over(left + captured.bytes)}"
        probability = exceeds(-left, spread([captured, worst.unattributed]))
        found_risks.append(Risk(phase="graphs", probability=probability, why=f"{why}; lower the fraction or the batch"))
        passing.append(captured)
    why = f"{step.bytes / GIB:.2f} GiB of activations against {left_over(left)} of headroom"
    stranded = terms.stranded(expandable(full))
    probability = exceeds(step.bytes + stranded.bytes - left, spread([*passing, worst.unattributed, stranded]))
    found_risks.append(Risk(phase="prefill", probability=probability, why=f"{why}; lower the fraction or the chunk"))
    probability = exceeds(rows.bytes - left, spread([*passing, worst.unattributed]))
    found_risks.append(
        Risk(phase="decode", probability=probability, why=f"{rows.bytes / GIB:.2f} GiB of logits against the same")
    )
    return tuple(found_risks)
