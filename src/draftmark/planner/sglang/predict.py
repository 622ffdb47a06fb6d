"""Predict SGLang: budget, pools, ledger, risks. The order is the engine's own."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.ledger import Pool
from draftmark.model import Gqa, Mla, Model
from draftmark.planner import experts, layout
from draftmark.planner.flags import has_flag, number_flag
from draftmark.planner.learn import NOTHING, Learned
from draftmark.planner.outcome import Plan, Reason
from draftmark.planner.room import room
from draftmark.planner.sglang.cells import BLOCK_SCALED
from draftmark.planner.sglang.defaults import resolve
from draftmark.planner.sglang.ledger import ledger, risks
from draftmark.planner.sglang.pools import divide, running_requests
from draftmark.planner.sglang.rank import Rank, rank
from draftmark.planner.sglang.rules import Rules, rules_for
from draftmark.planner.target import Reach, Target, in_one_pool, request_tokens
from draftmark.planner.terms import NINETY
from draftmark.units import GIB, Bytes, Tokens

NUMBERS: Final = (
    "--swa-full-tokens-ratio", "--mamba-full-memory-ratio", "--max-mamba-cache-size", "--max-prefill-tokens",
    "--nnodes",
)  # fmt: skip
"""Flags with a number, whether this model needs it or not: the engine reads them all."""


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
    """Predict what SGLang will make of a configuration.

    Raises:
        BadInput: the layout cannot work, or a default is not known.
    """
    rules = rules_for(configuration.version)
    refuse(model)
    refuse_cache(model, configuration)
    for name in NUMBERS:
        number_flag(configuration, name)
    layout.check(model, configuration, machine)
    full, reasons = resolve(model, configuration, machine.device, rules)
    stages = layout.stages(len(model.layers), full.parallel.pipeline)
    ranks = [rank(model, full, machine, stage, rules, free=free, draft=draft, learned=learned) for stage in stages]
    worst = min(ranks, key=lambda one: one.pools.tokens)
    running = asked_running(full, worst, model)
    idle = no_request(configuration, worst.pools.tokens, running)
    if full.max_running is None:
        why = "the engine's own limit: 2,048 to 4,096 by the pool, at most half its tokens or what states allow"
        reasons = (*reasons, Reason(field="max_running", value=str(running), why=why))
    full = msgspec.structs.replace(full, max_running=running)
    tokens = worst.pools.tokens
    # Printed tokens are one rank's; with decode context parallelism the ranks hold different tokens (0.5.15.post1 and
    # 0.5.23: scheduler.py prints max_total_num_tokens, the allocator gets it times dcp_size, in pages times dcp_size).
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
        held=Tokens(held),
        pools=full.parallel.data,
        bytes_per_token=Bytes(round(worst.cells.stored / full.parallel.decode_context)),
        bytes_per_request=Bytes(worst.states.slot if worst.states else 0),
        longest_request=Tokens(min(held, context)),
        room=room(
            held,
            context=context,
            page=(full.page or 1) * full.parallel.decode_context,
            most=full.max_running,
            pools=full.parallel.data,
        ),
        risks=risks(worst, ledgers[0], model, full, machine, rules),
        reasons=reasons,
        conflicts=idle,
        notes=(
            *beyond(worst, configuration, full, rules),
            *experts.notes(model, full, machine.device),
            *notes(worst, rules, model),
        ),
        reach=None if target is None else reach(worst, full, target, max(0, tokens)),
    )


def refuse(model: Model) -> None:
    """SGLang's arithmetic was not read for caches beside which a block selector keeps keys, nor for none at all.

    Raises:
        BadInput: the model is like that.
    """
    if model.selects_blocks:
        raise BadInput(
            "it is not known how SGLang sizes a pool with keys of a block selector",
            place=f"{model.name} ({model.architecture})",
            remedy="plan it for --engine vllm",
        )
    if not any(isinstance(layer.mixer, Gqa | Mla) for layer in model.layers):
        raise BadInput(
            "no layer keeps anything a token, and SGLang sizes its pool by that",
            place=f"{model.name} ({model.architecture})",
            remedy="plan it for --engine vllm",
        )


def refuse_cache(model: Model, configuration: Configuration) -> None:
    """Caches with scales of blocks were read for plain attention, and in 4 bits of one kind for latents (0.5.23).

    Raises:
        BadInput: the model mixes in windows, states or selectors, or has latents that such a cache does not hold.
    """
    dtype = configuration.kv_dtype
    if dtype not in BLOCK_SCALED or dtype == "fp4_e2m1":
        return
    mixers = [layer.mixer for layer in model.layers]
    plain = all(isinstance(mixer, Gqa) and mixer.window is None for mixer in mixers)
    latent = dtype == "fp4_mx_block16" and all(isinstance(mixer, Mla) and not mixer.indexer for mixer in mixers)
    if not plain and not latent:
        raise BadInput(
            f"it is not known what SGLang makes of a {dtype} cache for {model.architecture}",
            place="--kv-cache-dtype",
            remedy="plan another cache, like fp8_e4m3",
        )


def reach(worst: Rank, full: Configuration, target: Target, tokens: int) -> Reach:
    """Whether the fullest pool's part of the target fits, in printed tokens, which are one rank's."""
    concurrency = in_one_pool(target, full.parallel.data)
    share = 1.0 if worst.states is None else 1 / (1 + worst.states.ratio)
    return Reach(
        needed=concurrency * request_tokens(target, full),
        available=tokens,
        deviation=share * worst.deviation / worst.cells.counted,
        unit="tokens",
        requests=full.max_running or 0,
        concurrency=concurrency,
        pools=full.parallel.data,
        context_ranks=full.parallel.decode_context,
    )


def no_request(asked: Configuration, tokens: int, running: int) -> tuple[str, ...]:
    """That SGLang refuses to start, where its pools have no room for one running request; nothing where they have.

    Where the pool, its states or its requests were limited by the user that is an error; where the engine divides what
    is left, another fraction mends it.

    Raises:
        BadInput: the limits that were asked for leave no room.
    """
    if running >= 1 or tokens <= 0:
        return ()
    cause = f"a pool of {tokens} tokens has room for no running request (tp_worker.py refuses to start)"
    if asked.pool_tokens is None and asked.max_running is None and not has_flag(asked, "--max-mamba-cache-size"):
        return (f"{cause}; raise the fraction, or set --max-mamba-cache-size where states take their share",)
    raise BadInput(
        cause,
        place="--pool-tokens (--max-total-tokens), --max-running-requests, --max-mamba-cache-size",
        remedy="ask for a larger one, or leave it to the engine",
    )


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


def beyond(worst: Rank, asked: Configuration, full: Configuration, rules: Rules) -> tuple[str, ...]:
    """Says so where the pool is asked to be larger than what fits."""
    if asked.pool_tokens is None:
        return ()
    unlimited = msgspec.structs.replace(full, pool_tokens=None)
    fits = max(0, divide(worst.budget, worst.cells, worst.states, unlimited, rules).tokens)
    if asked.pool_tokens <= fits:
        return ()
    said = f"--max-total-tokens {asked.pool_tokens:,} is more than the {fits:,} that fit"
    return (f"{said}: SGLang warns and takes what fits",)


def notes(worst: Rank, rules: Rules, model: Model) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    found = [worst.learned.note] if worst.learned.note else []
    if worst.cells.stored > worst.cells.counted * 1.01:
        extra = worst.pools.tokens * (worst.cells.stored - worst.cells.counted) / GIB
        found.append(
            f"this version counts {worst.cells.counted:,.0f} B a token and then allocates {worst.cells.stored:,.0f}: "
            f"its pool overruns its budget by {extra:.2f} GiB, so leave that much headroom"
        )
    if worst.draft is not None and not rules.draft_counted:
        found.append("this version sizes the pool before the draft is loaded; its weights come out of the headroom")
    if any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers):
        found.append("selector logits grow with the context and are in no term: leave headroom for long prompts")
    if not model.exact_weights:
        found.append("weights are worked out from the config; a checkpoint's tensor headers make the interval narrower")
    return tuple(found)
