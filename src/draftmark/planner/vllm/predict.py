"""Predict vLLM: budget, groups and blocks, ledger, risks."""

import math
from typing import Any

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Device, Machine
from draftmark.ledger import Entry, Ledger, Pool, close
from draftmark.model import Mla, Model
from draftmark.physics.memory import kv_heads_of, weight_bytes
from draftmark.planner import layout
from draftmark.planner.outcome import Plan, Reason, Risk, Room
from draftmark.planner.room import lengths
from draftmark.planner.target import Reach, Target, reserve
from draftmark.planner.terms import NINETY, Term, exceeds, spread
from draftmark.planner.vllm import terms
from draftmark.planner.vllm.rules import Rules, rules_for
from draftmark.planner.vllm.specs import Grouping, grouped, specifications
from draftmark.units import GIB, Bytes, Tokens


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

    @property
    def blocks(self) -> int:
        """Blocks that the budget holds."""
        return max(0, int(self.budget // self.grouping.block_bytes))


def predict(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    *,
    free: Bytes | None,
    draft: Model | None,
    target: Target | None = None,
) -> Plan:
    """Predict what vLLM will make of a configuration.

    Raises:
        BadInput: the layout cannot work.
    """
    rules = rules_for(configuration.version)
    layout.check(model, configuration.parallel, machine)
    full, reasons = resolve(model, configuration, machine.device, rules)
    stages = layout.vllm_stages(len(model.layers), full.parallel.pipeline)
    ranks = [rank(model, full, machine, stage, rules, free=free, draft=draft) for stage in stages]
    worst = min(ranks, key=lambda one: one.blocks)
    blocks = override(full) or worst.blocks
    ordered = sorted(ranks, key=lambda one: one is not worst)
    ledgers = tuple(ledger(one, full, machine, rules, blocks) for one in ordered)
    context = full.context or model.context
    return Plan(
        model=model.name,
        architecture=model.architecture,
        exact_weights=model.exact_weights,
        configuration=full,
        device=machine.device,
        gpus=full.parallel.gpus,
        ledgers=ledgers,
        pool=interval(worst, full, rules, context, blocks),
        bytes_per_token=Bytes(round(worst.grouping.token_bytes / full.parallel.decode_context)),
        bytes_per_request=request_bytes(worst.grouping, full, context),
        longest_request=longest(worst.grouping, full, blocks, context),
        room=room(worst.grouping, full, blocks, context),
        risks=risks(worst, full, machine, rules, context),
        reasons=reasons,
        notes=notes(worst, model, rules),
        reach=None if target is None else reach(worst, full, target, blocks),
    )


def reach(worst: Rank, full: Configuration, target: Target, blocks: int) -> Reach:
    """Whether the target fits into the pool, one block being set aside by the engine."""
    length = target.length + reserve(full)
    return Reach(
        needed=target.concurrency * worst.grouping.request_blocks(length, full) + 1,
        available=blocks,
        deviation=worst.deviation / worst.grouping.block_bytes,
        unit="blocks",
        requests=full.max_running or 0,
        concurrency=target.concurrency,
    )


def resolve(
    model: Model, configuration: Configuration, device: Device, rules: Rules
) -> tuple[Configuration, tuple[Reason, ...]]:
    """Every default filled in, with its reason."""
    large = device.memory >= 70 * GIB and "a100" not in device.name.lower()
    largest = device.memory >= 160 * GIB
    version = ".".join(map(str, rules.version))
    selecting = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
    defaults: dict[str, tuple[Any, str]] = {
        "version": (version, "the newest version whose rules were read"),
        "memory_fraction": (rules.utilization, f"vLLM {version}'s default"),
        "chunk": (Tokens(16384 if largest else 8192 if large else 2048), f"the API server's default on {device.name}"),
        "max_running": (1024 if large else 256, f"the API server's default on {device.name}"),
        "context": (model.context, "the model's own length"),
        "page": (Tokens(64 if selecting else 16), "the attention backend's block"),
        "dtype": (model.dtype if model.dtype != "float32" else "bfloat16", "the checkpoint's dtype"),
        "kv_dtype": (model.kv_dtype if rules.since(0, 13) else None, "the checkpoint asks for it"),
    }
    chosen = {
        name: value
        for name, (value, _) in defaults.items()
        if value is not None and getattr(configuration, name) is None
    }
    reasons = tuple(Reason(field=name, value=str(value), why=defaults[name][1]) for name, value in chosen.items())
    return msgspec.structs.replace(configuration, **chosen), reasons


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
    """One rank's budget: ceil(total x utilization) less weights, profiled peak, and memory outside torch."""
    context, communication = terms.context(full), terms.communication(full)
    own = terms.weights(layout.rank_weights(model, full.parallel, stage), exact=model.exact_weights)
    drafted = draft_weights(model, full, draft) if stage.last else None
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
        budget=fixed if fixed is not None else requested - sum(term.bytes for term in charged),
        deviation=0.0 if fixed is not None else spread(charged),
    )


def draft_weights(model: Model, full: Configuration, draft: Model | None) -> Term | None:
    """Weights of the draft on one rank."""
    if full.speculative is None or full.speculative.algorithm == "ngram":
        return None
    groups = draft.weights if draft is not None else layout.draft_groups(model)
    size = weight_bytes(groups, full.parallel.tensor, kv_heads_of(draft or model))
    exact = draft.exact_weights if draft is not None else any(group.role == "draft" for group in model.weights)
    return msgspec.structs.replace(terms.weights(size, exact=exact), deviation=0.1 * size)


def fixed_pool(full: Configuration) -> int | None:
    """`--kv-cache-memory-bytes`, which takes the place of the budget."""
    flags = full.flags
    names = ("--kv-cache-memory-bytes", "--kv-cache-memory")
    text = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag in names), None)
    return int(float(text)) if text is not None and text.replace(".", "").isdigit() else None


def override(full: Configuration) -> int | None:
    """`--num-gpu-blocks-override`."""
    flags = full.flags
    at = flags.index("--num-gpu-blocks-override") if "--num-gpu-blocks-override" in flags[:-1] else None
    return int(flags[at + 1]) if at is not None and flags[at + 1].isdigit() else None


def printed(grouping: Grouping, full: Configuration, rules: Rules, context: int, blocks: int) -> int:
    """The number of tokens as that version prints it."""
    if rules.meaning == "concurrency":
        return int(blocks / grouping.request_blocks(context, full) * context)
    if rules.meaning == "groups":
        return blocks // len(grouping.groups) * grouping.smallest_block * full.parallel.decode_context
    return blocks * grouping.smallest_block


def interval(worst: Rank, full: Configuration, rules: Rules, context: int, blocks: int) -> Pool:
    """The pool with its 90 % interval."""
    swing = NINETY * worst.deviation

    def tokens(budget: float) -> Tokens:
        held = max(0, int(budget // worst.grouping.block_bytes))
        return Tokens(printed(worst.grouping, full, rules, context, held))

    fixed = override(full) is not None
    return Pool(
        tokens=Tokens(printed(worst.grouping, full, rules, context, blocks)),
        bytes=Bytes(blocks * worst.grouping.block_bytes),
        page=Tokens(worst.grouping.smallest_block),
        blocks=blocks,
        groups=len(worst.grouping.groups),
        low=Tokens(printed(worst.grouping, full, rules, context, blocks)) if fixed else tokens(worst.budget - swing),
        high=Tokens(printed(worst.grouping, full, rules, context, blocks)) if fixed else tokens(worst.budget + swing),
    )


def request_bytes(grouping: Grouping, full: Configuration, context: int) -> Bytes:
    """What a request takes in states and windows, whatever its length."""
    draft = full.speculative
    extra = (draft.draft_tokens or 0) if draft is not None else 0
    held = sum(
        group.blocks(context, full.chunk or 0, full.parallel.decode_context, extra)
        for group in grouping.groups
        if group.spec.kind != "full"
    )
    return Bytes(held * grouping.block_bytes)


def longest(grouping: Grouping, full: Configuration, blocks: int, context: int) -> Tokens:
    """The longest single request, one block being set aside by the engine."""
    low, high = 0, context
    while low < high:
        middle = (low + high + 1) // 2
        if grouping.request_blocks(middle, full) <= blocks - 1:
            low = middle
        else:
            high = middle - 1
    return Tokens(low)


def room(grouping: Grouping, full: Configuration, blocks: int, context: int) -> tuple[Room, ...]:
    """Requests at once, by length."""
    return tuple(
        Room(
            length=Tokens(length),
            requests=min(full.max_running or 1, max(0, blocks - 1) // grouping.request_blocks(length, full)),
        )
        for length in lengths(context)
    )


def ledger(one: Rank, full: Configuration, machine: Machine, rules: Rules, blocks: int) -> Ledger:
    """Where one rank's memory goes; the profiled peak is kept free for activations while serving."""
    entries = [
        Entry(account="context", bytes=one.context.bytes, why=one.context.why),
        Entry(account="communication", bytes=one.communication.bytes, why=one.communication.why),
        Entry(account="weights", bytes=one.weights.bytes, why=one.weights.why),
    ]
    if one.draft is not None:
        entries.append(Entry(account="draft weights", bytes=one.draft.bytes, why=one.draft.why))
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


def risks(worst: Rank, full: Configuration, machine: Machine, rules: Rules, context: int) -> tuple[Risk, ...]:
    """Probabilities by phase. Lack of pool asks for more utilization, lack of headroom for less."""
    total = machine.device.memory
    start = worst.requested - (total - worst.context.bytes)
    loads = worst.weights.bytes + worst.context.bytes - total
    needed = worst.grouping.request_blocks(context, full) * worst.grouping.block_bytes
    beyond = total - worst.requested - worst.context.bytes
    graphs = worst.graphs.bytes if worst.graphs is not None and not rules.graphs_charged else 0
    found = [
        Risk(
            phase="load",
            probability=max(exceeds(start, worst.context.deviation), exceeds(loads, worst.weights.deviation)),
            why=f"{worst.requested / GIB:.2f} GiB asked for, {(total - worst.context.bytes) / GIB:.2f} GiB free",
        ),
        Risk(
            phase="pool",
            probability=exceeds(needed - worst.budget, worst.deviation),
            why=(
                f"one request of {context:,} tokens takes {needed / GIB:.2f} of {worst.budget / GIB:.2f} GiB; where "
                "that is too little, raise the utilization or shorten --max-model-len"
            ),
        ),
    ]
    if worst.graphs is not None:
        probability = exceeds(graphs - beyond - worst.activations.bytes, worst.graphs.deviation)
        found.append(Risk(phase="graphs", probability=probability, why="graphs against what utilization leaves"))
    margin = beyond - graphs
    deviation = spread([worst.activations, *([worst.graphs] if worst.graphs else [])])
    why = f"the profiled peak is kept free, and {margin / GIB:.2f} GiB beyond; lower the utilization or the chunk"
    found.append(Risk(phase="prefill", probability=exceeds(-margin, deviation), why=why))
    return tuple(found)


def notes(worst: Rank, model: Model, rules: Rules) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    found = []
    if rules.meaning == "concurrency" and len(worst.grouping.groups) > 1:
        found.append(
            "this version prints concurrency x length, which moves with --max-model-len; compare bytes and blocks"
        )
    if not model.exact_weights:
        found.append("weights are worked out from the config; a checkpoint's tensor headers make the interval narrower")
    return tuple(found)
