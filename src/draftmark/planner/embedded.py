"""The embedded engine's arithmetic, as docs/embedded.md states it."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.ledger import Entry, Ledger, Pool, close
from draftmark.model import Gqa, Mla, Model
from draftmark.physics.memory import element_bytes, token_bytes
from draftmark.planner.embedded_prefill import activations, prefill_risk
from draftmark.planner.outcome import Plan, Reason, Risk, RiskPhase, cannot_start
from draftmark.planner.room import room
from draftmark.planner.target import Reach, Target
from draftmark.planner.terms import NINETY
from draftmark.units import GIB, MIB, Bytes, Tokens, parse_tokens

FRACTION: Final = {"cpu": 0.5, "cuda": 0.85}
CHUNK: Final = 512
MAX_RUNNING: Final = 8
CONTEXT_BYTES: Final = {"cuda": 700 * MIB}
"""A process's CUDA context; the 139.8 GiB of an H200 showed 139.09 free once a process had one."""
FREE_UNCERTAINTY: Final = 0.02
"""Share of a host's free memory by which it moves between the plan and the start; zero with --memory."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine works with, in bytes and tokens."""

    capacity: Bytes
    free: Bytes
    budget: Bytes
    weights: Bytes
    per_token: Bytes
    limit: Tokens
    exact: bool
    """Whether free memory is known and not only expected."""


def predict(
    model: Model, configuration: Configuration, machine: Machine, *, free: Bytes | None, target: Target | None = None
) -> Plan:
    """Predict the embedded engine.

    Raises:
        BadInput: the model caches something else than keys and values or latents.
    """
    refuse(model)
    full, reasons = resolve(model, configuration)
    sizes = measure(model, full, machine, free)
    pool = size_pool(full, sizes)
    ledger = write_ledger(model, full, sizes, pool)
    found = risks(model, full, sizes, pool)
    context = full.context or model.context
    usable = Tokens(0) if cannot_start(found) else pool.tokens
    notes = () if sizes.exact else ("free memory on a shared host moves; --memory makes the pool exact",)
    return Plan(
        model=model.name,
        architecture=model.architecture,
        exact_weights=model.exact_weights,
        configuration=full,
        device=machine.device,
        gpus=1,
        ledgers=(ledger,),
        pool=pool,
        held=usable,
        pools=1,
        bytes_per_token=sizes.per_token,
        bytes_per_request=Bytes(0),
        longest_request=Tokens(min(usable, context)),
        room=room(usable, context=context, most=full.max_running),
        risks=found,
        reasons=reasons,
        notes=notes,
        reach=None if target is None else reach(full, sizes, usable, target),
    )


def reach(full: Configuration, sizes: Sizes, usable: int, target: Target) -> Reach:
    """Whether the target fits into the pool."""
    swing = 0.0 if sizes.exact or full.pool_tokens is not None else FREE_UNCERTAINTY * sizes.budget / NINETY
    return Reach(
        needed=target.concurrency * target.length,
        available=usable,
        deviation=swing / sizes.per_token,
        unit="tokens",
        requests=full.max_running or MAX_RUNNING,
        concurrency=target.concurrency,
    )


def refuse(model: Model) -> None:
    """The engine serves caches of keys and values, and of latents.

    Raises:
        BadInput: the model caches anything else.
    """
    for number, layer in enumerate(model.layers):
        mixer = layer.mixer
        plain = isinstance(mixer, Gqa) and mixer.cached and mixer.indexer is None
        latent = isinstance(mixer, Mla) and mixer.indexer is None
        if not plain and not latent:
            raise BadInput(
                f"the embedded engine cannot hold layer {number}'s cache ({type(mixer).__name__})",
                place=f"{model.name} ({model.architecture})",
                remedy="plan it for --engine sglang or vllm",
            )


def resolve(model: Model, configuration: Configuration) -> tuple[Configuration, tuple[Reason, ...]]:
    """Fill in the engine's defaults, each with its reason."""
    device = "cpu" if configuration.device == "cpu" else "cuda"
    fraction = None if configuration.pool_tokens is not None else FRACTION[device]
    defaults: dict[str, tuple[object, str]] = {
        "memory_fraction": (fraction, f"the engine's default on {device}"),
        "chunk": (Tokens(CHUNK), "the engine's default"),
        "max_running": (MAX_RUNNING, "the engine's default"),
        "context": (model.context, "the model's own length"),
        "page": (Tokens(1), "the engine's page is one token"),
        "dtype": (model.dtype, "the checkpoint's dtype"),
    }
    chosen = {name: value for name, (value, _) in defaults.items() if getattr(configuration, name) is None}
    reasons = tuple(
        Reason(field=name, value=str(value), why=defaults[name][1])
        for name, value in chosen.items()
        if value is not None
    )
    return msgspec.structs.replace(configuration, **chosen), reasons


def memory_limit(configuration: Configuration) -> Bytes | None:
    """The engine's own `--memory`, which our vocabulary has no word for.

    Raises:
        BadInput: it is not a number of bytes.
    """
    flags = configuration.flags
    text = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--memory"), None)
    if text is None:
        return None
    try:
        limit = Bytes(parse_tokens(text.removesuffix("B")))
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not a number of bytes", place="--memory", remedy="write it like 2Gi or 512Mi"
        ) from error
    if limit < 1:
        raise BadInput(f"{text!r} leaves no memory", place="--memory", remedy="write it like 2Gi or 512Mi")
    return limit


def measure(model: Model, configuration: Configuration, machine: Machine, free: Bytes | None) -> Sizes:
    """The engine's quantities before it sizes its pool."""
    limit = memory_limit(configuration)
    capacity = machine.device.memory
    context = CONTEXT_BYTES.get(configuration.device, 0)
    known = free if free is not None else Bytes(capacity - context)
    if limit is not None:
        capacity, known = Bytes(min(limit, capacity)), Bytes(min(limit, known))
    dtype = configuration.dtype if configuration.dtype not in (None, "auto") else model.dtype
    element = element_bytes(dtype or model.dtype)
    fraction = configuration.memory_fraction
    context_tokens = configuration.context or model.context
    return Sizes(
        capacity=capacity,
        free=known,
        budget=Bytes(int((1.0 if fraction is None else fraction) * known)),
        weights=served_weights(model, element),
        per_token=token_bytes(model, element),
        limit=Tokens((configuration.max_running or MAX_RUNNING) * context_tokens),
        exact=limit is not None,
    )


def served_weights(model: Model, element: float) -> Bytes:
    """Parameters in the dtype that is served, quantized ones as stored; draft layers and vision towers stay out."""
    loaded = [group for group in model.weights if group.role not in ("draft", "vision")]
    if model.quantization is not None:
        return Bytes(sum(group.bytes for group in loaded))
    return Bytes(round(sum(group.parameters for group in loaded) * element))


def size_pool(configuration: Configuration, sizes: Sizes) -> Pool:
    """floor((budget - weights) / bytes per token), at most max_running x context; or as many tokens as asked for."""
    if configuration.pool_tokens is not None:
        tokens = configuration.pool_tokens
        return Pool(tokens=tokens, bytes=Bytes(tokens * sizes.per_token), page=Tokens(1), low=tokens, high=tokens)

    def fitting(budget: float) -> Tokens:
        return Tokens(min(sizes.limit, max(0, int(budget - sizes.weights) // sizes.per_token)))

    swing = 0.0 if sizes.exact else FREE_UNCERTAINTY
    tokens = fitting(sizes.budget)
    return Pool(
        tokens=tokens,
        bytes=Bytes(tokens * sizes.per_token),
        page=Tokens(1),
        low=fitting(sizes.budget * (1 - swing)),
        high=fitting(sizes.budget * (1 + swing)),
    )


def write_ledger(model: Model, configuration: Configuration, sizes: Sizes, pool: Pool) -> Ledger:
    """Where the memory goes; what others hold already stands under context."""
    held = Bytes(pool.tokens * sizes.per_token)
    elements = sizes.per_token
    entries = [
        Entry(account="weights", bytes=sizes.weights, why=f"{len(model.layers)} layers, embedding and head, as served"),
        Entry(account="pool", bytes=held, why=f"{pool.tokens:,} tokens x {elements:,} B a token"),
    ]
    if sizes.capacity > sizes.free:
        why = f"capacity - {sizes.free / GIB:.2f} GiB free: what other processes and the context hold"
        entries.insert(0, Entry(account="context", bytes=Bytes(sizes.capacity - sizes.free), why=why))
    depth = min(pool.tokens, configuration.context or model.context)
    why = f"the last chunk of a prompt of {depth:,} tokens: its widest layer, attention over all of it, logits"
    entries.append(Entry(account="activations", bytes=Bytes(activations(model, configuration, depth)), why=why))
    return close(rank=0, capacity=sizes.capacity, entries=tuple(entries))


def risks(model: Model, full: Configuration, sizes: Sizes, pool: Pool) -> tuple[Risk, ...]:
    """Certain where the arithmetic decides it; the engine reserves everything but activations at start."""

    def fails(phase: RiskPhase, why: str) -> tuple[Risk, ...]:
        return (Risk(phase=phase, probability=1.0, why=why),)

    if sizes.weights > sizes.free:
        return fails("load", "the weights are larger than the free memory")
    if pool.tokens == 0:
        return fails("pool", "the weights fill the budget; raise the memory fraction")
    left = sizes.free - sizes.weights - pool.tokens * sizes.per_token
    if left < 0:
        return fails("pool", f"the pool is {-left / GIB:,.2f} GiB more than is left; lower --pool-tokens")
    deepest = Tokens(min(pool.tokens, full.context or model.context))
    if activations(model, full, min(deepest, full.chunk or CHUNK)) > left:
        return fails("pool", "what the pool leaves does not hold one chunk, which is tried at start")
    swing = 0.0 if sizes.exact else FREE_UNCERTAINTY * sizes.free / NINETY
    return (prefill_risk(model, full, left=left, depth=deepest, swing=swing),)
