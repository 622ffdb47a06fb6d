"""Predict vLLM: budget, groups and blocks, ledger, risks."""

from typing import Any

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.ledger import Pool
from draftmark.model import Mla, Model
from draftmark.planner import layout
from draftmark.planner.flags import whole_flag
from draftmark.planner.learn import NOTHING, Learned
from draftmark.planner.outcome import Plan, Reason, Room
from draftmark.planner.room import lengths
from draftmark.planner.target import Reach, Target, in_one_pool, reserve
from draftmark.planner.terms import NINETY
from draftmark.planner.vllm.ledger import ledger, risks
from draftmark.planner.vllm.rank import Rank, rank
from draftmark.planner.vllm.rules import Rules, rules_for
from draftmark.planner.vllm.specs import SELECTED_BLOCK, Grouping
from draftmark.units import GIB, Bytes, Tokens


def predict(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    *,
    free: Bytes | None,
    draft: Model | None,
    target: Target | None = None,
    learned: Learned = NOTHING,
) -> Plan:
    """Predict what vLLM will make of a configuration.

    Raises:
        BadInput: the layout cannot work.
    """
    rules = rules_for(configuration.version)
    layout.check(model, configuration, machine)
    check_page(model, configuration)
    full, reasons = resolve(model, configuration, machine.device, rules)
    stages = layout.vllm_stages(len(model.layers), full.parallel.pipeline)
    ranks = [rank(model, full, machine, stage, rules, free=free, draft=draft, learned=learned) for stage in stages]
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
        held=Tokens(effective(worst.grouping, full, rules, context, blocks)),
        pools=full.parallel.data,
        bytes_per_token=Bytes(round(worst.grouping.token_bytes / full.parallel.decode_context)),
        bytes_per_request=request_bytes(worst.grouping, full, context),
        longest_request=longest(worst.grouping, full, blocks, context),
        room=room(worst.grouping, full, blocks, context),
        risks=risks(worst, full, machine, rules, blocks, context),
        reasons=reasons,
        notes=(*beyond(worst, blocks), *notes(worst, model, rules)),
        reach=None if target is None else reach(worst, full, target, blocks),
    )


def check_page(model: Model, configuration: Configuration) -> None:
    """Layers that select blocks take pages of whole blocks only.

    Raises:
        BadInput: another page is asked for.
    """
    if model.selects_blocks and (configuration.page or SELECTED_BLOCK) % SELECTED_BLOCK:
        raise BadInput(
            f"a block of {configuration.page} tokens does not hold the {SELECTED_BLOCK} that are selected together",
            place=f"--block-size ({model.name})",
            remedy=f"leave it out, or give {SELECTED_BLOCK}",
        )


def reach(worst: Rank, full: Configuration, target: Target, blocks: int) -> Reach:
    """Whether the fullest pool's part of the target fits, one block being set aside by the engine."""
    length = target.length + reserve(full)
    concurrency = in_one_pool(target, full.parallel.data)
    return Reach(
        needed=concurrency * worst.grouping.request_blocks(length, full) + 1,
        available=blocks,
        deviation=worst.deviation / worst.grouping.block_bytes,
        unit="blocks",
        requests=full.max_running or 0,
        concurrency=concurrency,
        pools=full.parallel.data,
    )


def resolve(
    model: Model, configuration: Configuration, device: Device, rules: Rules
) -> tuple[Configuration, tuple[Reason, ...]]:
    """Every default filled in, with its reason."""
    large = device.memory >= 70 * GIB and "a100" not in device.name.lower()
    largest = device.memory >= 160 * GIB
    version = ".".join(map(str, rules.version))
    block = SELECTED_BLOCK if model.selects_blocks else 16
    selecting = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
    defaults: dict[str, tuple[Any, str]] = {
        "version": (version, "the newest version whose rules were read"),
        "memory_fraction": (rules.utilization, f"vLLM {version}'s default"),
        "chunk": (Tokens(16384 if largest else 8192 if large else 2048), f"the API server's default on {device.name}"),
        "max_running": (1024 if large else 256, f"the API server's default on {device.name}"),
        "context": (model.context, "the model's own length"),
        "page": (Tokens(64 if selecting else block), "the attention backend's block"),
        "dtype": layout.served_dtype(model, "vllm"),
        "kv_dtype": (model.kv_dtype if rules.since(0, 13) else None, "the checkpoint asks for it"),
    }
    if configuration.context == -1:
        configuration = msgspec.structs.replace(configuration, context=None)
        defaults["context"] = (model.context, "as much of the model's own length as fits")
    chosen = {
        name: value
        for name, (value, _) in defaults.items()
        if value is not None and getattr(configuration, name) is None
    }
    reasons = [Reason(field=name, value=str(value), why=defaults[name][1]) for name, value in chosen.items()]
    full = msgspec.structs.replace(configuration, **chosen)
    if full.kv_dtype is None:
        reasons.append(Reason(field="kv_dtype", value=str(full.dtype), why="the served dtype, vLLM's default"))
    if full.graphs:
        reasons.append(Reason(field="graphs", value="captured", why="vLLM's default; --enforce-eager captures none"))
    return full, tuple(reasons)


def beyond(worst: Rank, blocks: int) -> tuple[str, ...]:
    """Says so where the pool is set to more than is left for it."""
    if blocks <= worst.blocks:
        return ()
    said = f"--num-gpu-blocks-override {blocks:,} takes the place of the {worst.blocks:,} blocks that fit"
    return (f"{said}: vLLM does not check it, and runs out of memory where they do not",)


def override(full: Configuration) -> int | None:
    """`--num-gpu-blocks-override`."""
    return whole_flag(full, "--num-gpu-blocks-override")


def printed(grouping: Grouping, full: Configuration, rules: Rules, context: int, blocks: int) -> int:
    """The number of tokens as that version prints it."""
    if rules.meaning == "concurrency":
        return int(blocks / grouping.request_blocks(context, full) * context)
    if rules.meaning == "groups":
        return blocks // len(grouping.groups) * grouping.smallest_block * full.parallel.decode_context
    return blocks * grouping.smallest_block


def effective(grouping: Grouping, full: Configuration, rules: Rules, context: int, blocks: int) -> int:
    """Tokens of context that the pool holds: what is printed, but the oldest meaning leaves out context ranks."""
    ranks = full.parallel.decode_context if rules.meaning == "blocks" else 1
    return printed(grouping, full, rules, context, blocks) * ranks


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
    found = []
    for length in lengths(context):
        requests = min(full.max_running or 1, max(0, blocks - 1) // grouping.request_blocks(length, full))
        found.append(Room(length=Tokens(length), requests=requests, in_all=requests * full.parallel.data))
    return tuple(found)


def notes(worst: Rank, model: Model, rules: Rules) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    found = [worst.learned.note] if worst.learned.note else []
    if rules.meaning == "concurrency" and len(worst.grouping.groups) > 1:
        found.append(
            "this version prints concurrency x length, which moves with --max-model-len; compare bytes and blocks"
        )
    if model.selects_blocks:
        found.append(
            "the selector's keys are bf16, as vLLM 0.32.0 has them; other versions, or an indexer_kv_dtype, may differ"
        )
    if not model.exact_weights:
        found.append("weights are worked out from the config; a checkpoint's tensor headers make the interval narrower")
    return tuple(found)
