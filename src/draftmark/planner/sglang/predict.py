"""Predict SGLang: budget, pools, ledger, risks. The order is the engine's own."""

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Machine
from draftmark.ledger import Entry, Ledger, Pool, close
from draftmark.model import Model
from draftmark.physics.memory import kv_heads_of, weight_bytes
from draftmark.planner import layout
from draftmark.planner.outcome import Plan, Risk
from draftmark.planner.room import room
from draftmark.planner.sglang import terms
from draftmark.planner.sglang.cells import Cells, States, cells, states
from draftmark.planner.sglang.defaults import resolve
from draftmark.planner.sglang.pools import Pools, divide, multimodal_reserve, request_table, running_requests
from draftmark.planner.sglang.rules import Rules, rules_for
from draftmark.planner.target import Reach, Target, request_tokens
from draftmark.planner.terms import NINETY, Term, exceeds, spread
from draftmark.units import GIB, Bytes, Tokens


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's quantities before the pool is sized, and its pools."""

    stage: layout.Stage
    context: Term
    communication: Term | None
    weights: Term
    draft: Term | None
    unattributed: Term
    cells: Cells
    states: States | None
    before: float
    budget: float
    deviation: float
    pools: Pools


def predict(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    *,
    free: Bytes | None,
    draft: Model | None,
    target: Target | None = None,
) -> Plan:
    """Predict what SGLang will make of a configuration.

    Raises:
        BadInput: the layout cannot work, or a default is not known.
    """
    rules = rules_for(configuration.version)
    layout.check(model, configuration.parallel, machine)
    full, reasons = resolve(model, configuration, machine.device, rules)
    stages = layout.stages(len(model.layers), full.parallel.pipeline)
    ranks = [rank(model, full, machine, stage, rules, free=free, draft=draft) for stage in stages]
    worst = min(ranks, key=lambda one: one.pools.tokens)
    full = msgspec.structs.replace(full, max_running=asked_running(full, worst, model))
    tokens = worst.pools.tokens
    # Printed tokens are one rank's; with decode context parallelism the ranks hold different tokens.
    held = max(0, tokens) * full.parallel.decode_context
    ledgers = tuple(
        ledger(one, model, cap(full, tokens), machine, rules) for one in sorted(ranks, key=lambda one: one is not worst)
    )
    context = full.context or model.context
    return Plan(
        model=model.name,
        architecture=model.architecture,
        exact_weights=model.exact_weights,
        configuration=full,
        device=machine.device,
        gpus=full.parallel.gpus,
        ledgers=ledgers,
        pool=interval(worst, full, rules),
        bytes_per_token=Bytes(round(worst.cells.stored / full.parallel.decode_context)),
        bytes_per_request=Bytes(worst.states.slot if worst.states else 0),
        longest_request=Tokens(min(held, context)),
        room=room(held, context=context, page=full.page or 1, most=full.max_running),
        risks=risks(worst, ledgers[0], model, full, rules),
        reasons=reasons,
        notes=notes(worst, rules, model),
        reach=None if target is None else reach(worst, full, target, held),
    )


def reach(worst: Rank, full: Configuration, target: Target, held: int) -> Reach:
    """Whether the target fits into the pool."""
    needed = target.concurrency * request_tokens(target, full)
    per_token = worst.cells.counted / full.parallel.decode_context
    share = 1.0 if worst.states is None else 1 / (1 + worst.states.ratio)
    return Reach(
        needed=needed,
        available=held,
        deviation=share * worst.deviation / per_token,
        unit="tokens",
        requests=full.max_running or 0,
        concurrency=target.concurrency,
    )


def rank(
    model: Model,
    full: Configuration,
    machine: Machine,
    stage: layout.Stage,
    rules: Rules,
    *,
    free: Bytes | None,
    draft: Model | None,
) -> Rank:
    """The quantities of one rank of a stage."""
    context, communication = terms.context(), terms.communication(full)
    before = float(free if free is not None else machine.device.memory - context.bytes)
    before -= communication.bytes if communication else 0
    own = terms.weights(layout.rank_weights(model, full.parallel, stage), exact=model.exact_weights)
    drafted = draft_weights(model, full, draft) if stage.last else None
    counted = drafted.bytes if drafted is not None and rules.draft_counted else 0
    rest = terms.unattributed()
    slack = before * (1 - (full.memory_fraction or 0))
    budget = before - own.bytes - counted - rest.bytes - slack - multimodal_reserve(rules, vision=model.vision)
    found, held = cells(model, full, stage, rules, draft), states(model, full, stage)
    machine_terms = [context, *([communication] if communication else [])]
    deviation = spread([own, rest, *([drafted] if drafted else [])])
    return Rank(
        stage=stage,
        context=context,
        communication=communication,
        weights=own,
        draft=drafted,
        unattributed=rest,
        cells=found,
        states=held,
        before=before,
        budget=budget,
        # What is missing before the start lowers the budget only by the fraction.
        deviation=(deviation**2 + ((full.memory_fraction or 0) * spread(machine_terms)) ** 2) ** 0.5,
        pools=divide(budget, found, held, full, rules),
    )


def draft_weights(model: Model, full: Configuration, draft: Model | None) -> Term | None:
    """Weights of the draft on one rank; drafts share the target's ranks."""
    if full.speculative is None or full.speculative.algorithm.upper() in ("NGRAM", "NONE"):
        return None
    groups = draft.weights if draft is not None else layout.draft_groups(model)
    size = weight_bytes(groups, full.parallel.tensor, kv_heads_of(draft or model))
    exact = draft.exact_weights if draft is not None else any(group.role == "draft" for group in model.weights)
    return msgspec.structs.replace(terms.weights(size, exact=exact), deviation=0.1 * size)


def asked_running(full: Configuration, worst: Rank, model: Model) -> int:
    """Most running requests as the engine will settle on them."""
    return running_requests(worst.pools, worst.states, full, full.context or model.context)


def cap(full: Configuration, tokens: int) -> Configuration:
    """Every stage takes the smallest stage's pool."""
    return msgspec.structs.replace(full, pool_tokens=Tokens(max(0, tokens)))


def interval(worst: Rank, full: Configuration, rules: Rules) -> Pool:
    """The pool with its 90 % interval."""

    def tokens(budget: float) -> Tokens:
        return Tokens(max(0, divide(budget, worst.cells, worst.states, full, rules).tokens))

    swing = NINETY * worst.deviation
    return Pool(
        tokens=Tokens(max(0, worst.pools.tokens)),
        bytes=Bytes(worst.pools.bytes + worst.pools.draft_bytes),
        page=full.page,
        low=tokens(worst.budget - swing),
        high=tokens(worst.budget + swing),
    )


def ledger(one: Rank, model: Model, full: Configuration, machine: Machine, rules: Rules) -> Ledger:
    """Where one rank's memory goes when the server is ready and prefills its first full chunk."""
    pools = divide(one.budget, one.cells, one.states, full, rules)
    held = machine.device.memory - one.before - (one.communication.bytes if one.communication else 0)
    entries = [Entry(account="context", bytes=Bytes(round(held)), why=one.context.why)]
    if one.communication is not None:
        entries.append(Entry(account="communication", bytes=one.communication.bytes, why=one.communication.why))
    entries.append(Entry(account="weights", bytes=one.weights.bytes, why=one.weights.why))
    if one.draft is not None:
        entries.append(Entry(account="draft weights", bytes=one.draft.bytes, why=one.draft.why))
    entries += pool_entries(one, pools, full)
    running = full.max_running or 0
    context = full.context or model.context
    table = request_table(running, context, full)
    why = f"({running:,} running requests + 1) x {context:,} tokens of context x 4 B, outside the budget"
    entries.append(Entry(account="request tables", bytes=Bytes(table), why=why))
    captured = terms.graphs(model, full, rules)
    if captured is not None:
        entries.append(Entry(account="graphs", bytes=captured.bytes, why=captured.why))
    step = terms.activations(model, full, rules)
    entries.append(Entry(account="activations", bytes=step.bytes, why=step.why))
    rows = terms.logits(model, full)
    entries.append(Entry(account="logits", bytes=rows.bytes, why=rows.why))
    return close(rank=one.stage.number * full.parallel.tensor, capacity=machine.device.memory, entries=tuple(entries))


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


def risks(worst: Rank, found: Ledger, model: Model, full: Configuration, rules: Rules) -> tuple[Risk, ...]:
    """Probabilities by phase. Lack of pool asks for a higher fraction, lack of headroom for a lower one."""
    load = worst.weights.bytes + (worst.draft.bytes if worst.draft else 0) - worst.before
    found_risks = [
        Risk(
            phase="load",
            probability=exceeds(load, spread([worst.weights, worst.context])),
            why=f"weights against {worst.before / GIB:.2f} GiB free",
        ),
        Risk(
            phase="pool",
            probability=exceeds(-worst.budget, worst.deviation),
            why=f"{worst.budget / GIB:.2f} GiB are left for the pool; where that is too little, raise the fraction",
        ),
    ]
    step, rows, captured = (
        terms.activations(model, full, rules),
        terms.logits(model, full),
        terms.graphs(model, full, rules),
    )
    passing = [step, rows]
    left = float(found.free + step.bytes + rows.bytes)
    if captured is not None:
        why = f"{captured.bytes / GIB:.2f} GiB of graphs against {(left + captured.bytes) / GIB:.2f} GiB"
        probability = exceeds(-left, spread([captured, worst.unattributed]))
        found_risks.append(Risk(phase="graphs", probability=probability, why=f"{why}; lower the fraction or the batch"))
        passing.append(captured)
    why = f"{step.bytes / GIB:.2f} GiB of activations against {left / GIB:.2f} GiB of headroom"
    probability = exceeds(step.bytes - left, spread([*passing, worst.unattributed]))
    found_risks.append(Risk(phase="prefill", probability=probability, why=f"{why}; lower the fraction or the chunk"))
    probability = exceeds(rows.bytes - left, spread([*passing, worst.unattributed]))
    found_risks.append(
        Risk(phase="decode", probability=probability, why=f"{rows.bytes / GIB:.2f} GiB of logits against the same")
    )
    return tuple(found_risks)


def notes(worst: Rank, rules: Rules, model: Model) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    found = []
    if worst.cells.stored > worst.cells.counted * 1.01:
        extra = worst.pools.tokens * (worst.cells.stored - worst.cells.counted) / GIB
        found.append(
            f"this version counts {worst.cells.counted:,.0f} B a token and then allocates {worst.cells.stored:,.0f}: "
            f"its pool overruns its budget by {extra:.2f} GiB, so leave that much headroom"
        )
    if worst.draft is not None and not rules.draft_counted:
        found.append("this version sizes the pool before the draft is loaded; its weights come out of the headroom")
    if not model.exact_weights:
        found.append("weights are worked out from the config; a checkpoint's tensor headers make the interval narrower")
    return tuple(found)
