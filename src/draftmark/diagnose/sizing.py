"""Rules for starts that end because memory was divided wrongly, before any allocation failed."""

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case, as_evidence, gib, once
from draftmark.diagnose.knobs import HIGH_FRACTION
from draftmark.diagnose.plain import free, told_by
from draftmark.diagnose.signs import Sign, first_stated
from draftmark.finding import Change, Finding, Remedy
from draftmark.units import GIB, MIB


def pool_below_context(case: Case) -> Finding | None:
    """The pool cannot hold one request of the longest length that is promised."""
    signs = case.signs("pool below context")
    if not signs:
        return None
    sign = signs[0]
    context, tokens, needed, available = (sign.number(name) for name in ("context", "tokens", "needed", "available"))
    possible = sign.number("possible") or tokens
    if needed is not None and available is not None:
        claim = f"one longest request needs {needed:.2f} GiB of cache and the pool has {available:.2f} GiB"
    else:
        claim = f"the pool holds {tokens or 0:,.0f} tokens and requests of {context or 0:,.0f} are promised"
    least = _fraction_for(case, _missing(case, sign))
    why = f"{claim}; the fraction decides how much the pool gets"
    changes = remedies.only(
        remedies.shorter_context(case, possible),
        remedies.raise_fraction(case, least, why),
        remedies.smaller_chunk(case, "the trial run of a full chunk takes what the pool could have"),
    )
    return Finding(
        code="pool-below-context",
        severity="fatal",
        confidence="certain",
        claim=claim,
        evidence=once(as_evidence(one) for one in signs[:2]),
        remedies=changes,
    )


def _missing(case: Case, sign: Sign) -> float:
    """Bytes by which the pool is too small for one longest request; 0 where the log does not tell."""
    context, tokens, needed, available = (sign.number(name) for name in ("context", "tokens", "needed", "available"))
    if needed is not None and available is not None:
        return (needed - available) * GIB
    size = case.number("pool_bytes")
    return size * (context / tokens - 1) if size and tokens and context else 0


def no_room_for_pool(case: Case) -> Finding | None:
    """Weights and activations take the whole budget."""
    signs = case.signs("no room", "negative pool", "no blocks")
    if not signs or case.signs("pool below context"):
        return None
    available = next((value for sign in signs if (value := sign.number("available")) is not None), None)
    weights = case.number("weights")
    parts = [
        f"weights {gib(weights)}" if weights is not None else "",
        f"activations {gib(value)}" if (value := case.number("activations")) is not None else "",
        f"left {available:.2f} GiB" if available is not None else "",
    ]
    said = ", ".join(part for part in parts if part)
    least = _least_fraction(case, available)
    filled = first_stated(signs, "filled")
    cannot = filled is not None or (least is not None and least > HIGH_FRACTION)
    return Finding(
        code="no-room-for-pool",
        severity="fatal",
        confidence="certain",
        claim=f"nothing of the engine's budget is left for the pool{f': {said}' if said else ''}",
        evidence=tuple(as_evidence(sign) for sign in signs[:3]),
        remedies=_room(case, least, cannot=cannot),
    )


def _room(case: Case, least: float | None, *, cannot: bool) -> tuple[Remedy, ...]:
    sizing_run = case.engine != "sglang"
    fewer = remedies.fewer_requests(case, "the trial run samples for the most requests") if sizing_run else None
    chunk = remedies.smaller_chunk(case, "the trial run of a full chunk takes what the pool could have")
    if cannot:
        change = case.change("fraction", "cannot help")
        no_use = Remedy(changes=(change,), arithmetic="the weights fill the device", cost="nothing") if change else None
        return remedies.only(remedies.more_gpus(case, "each GPU then holds less of the weights"), no_use)
    why = "the budget must hold weights, activations and the pool"
    if least is not None:
        why = f"{why}; least fraction by the log's numbers {least:.3f}"
    return remedies.only(
        remedies.raise_fraction(case, least, why),
        chunk if sizing_run else None,
        fewer,
        remedies.more_gpus(case, "each GPU then holds less of the weights"),
    )


def _least_fraction(case: Case, available: float | None) -> float | None:
    """The smallest fraction with any pool: SGLang's by free memory, vLLM's by what was missing of the budget."""
    said = next((value for sign in case.signs("no room") if (value := sign.number("minimum")) is not None), None)
    if said is not None:
        return said
    if case.engine == "sglang":
        frees = [one for one in case.start.observations if one.quantity == "free" and one.phase == "weights"]
        values = [float(one.value) for one in frees if not isinstance(one.value, str)]
        weights = case.number("weights")
        before = values[-1] + weights if len(values) == 1 and weights is not None else values[0] if values else None
        return 1 - values[-1] / before if before else None
    return _fraction_for(case, -(available or 0) * GIB) if available is not None else None


def _fraction_for(case: Case, missing: float) -> float | None:
    if case.fraction is None or case.capacity is None or missing <= 0:
        return None
    return case.fraction + missing / case.capacity


def no_headroom(case: Case) -> Finding | None:
    """Hardly anything is left beside the pool, though nothing has failed yet."""
    if case.failure is not None or case.signs("no room", "pool below context", "negative pool"):
        return None
    fraction, free = case.number("memory_fraction"), case.seen("free")
    full = fraction is not None and fraction >= 0.99 and case.number("pool_bytes") is not None
    graphs = [one for one in case.start.observations if one.quantity == "free" and one.phase in {"pool", "graphs"}]
    low = [one for one in graphs if not isinstance(one.value, str) and float(one.value) < 100 * MIB]
    if not full and not low:
        return None
    evidence = tuple(one for one in (case.seen("memory_fraction"), *low[:2], free) if one is not None)
    left = f"{gib(float(low[0].value))} are left beside the pool" if low else f"the fraction is {fraction:g}"
    return Finding(
        code="no-headroom",
        severity="warning",
        confidence="likely",
        claim=f"{left}: activations and graphs have no room, whatever the start says",
        evidence=evidence[:4],
        remedies=remedies.only(remedies.lower_fraction(case), remedies.fewer_graphs(case) if low else None),
    )


def memory_taken(case: Case) -> Finding | None:
    """Somebody else holds memory of the GPU."""
    signs = case.signs("memory taken")
    if not signs:
        return None
    sign = signs[0]
    free, capacity, wanted = (sign.number(name) or 0.0 for name in ("free", "capacity", "wanted"))
    taken = f"{capacity - free:.2f} of {capacity:.2f} GiB were taken on {sign.values.get('device', 'the device')}"
    others = Change(flag="other processes on the GPU", direction="lower")
    lower = case.change("fraction", "lower", f"{max(free - 0.5, 0) / capacity:.2f}" if capacity else None)
    return Finding(
        code="memory-taken",
        severity="fatal",
        confidence="certain",
        claim=f"{taken} before this engine started, and it wants {wanted:.2f} GiB",
        evidence=(as_evidence(sign),),
        remedies=(
            Remedy(changes=(others,), arithmetic=f"{wanted:.2f} GiB wanted, {free:.2f} free", cost="no pool"),
            *(
                (Remedy(changes=(lower,), arithmetic=f"{free:.2f} GiB are free", cost="pool tokens"),)
                if lower is not None
                else ()
            ),
        ),
    )


def memory_given_back(case: Case) -> Finding | None:
    """Another process gave memory back while this engine measured what it needs (vLLM)."""
    signs = case.signs("memory given back")
    if not signs:
        return None
    unit = GIB if "unit" in signs[0].values else 1
    before, after = ((signs[0].number(name) or 0) * unit for name in ("before", "after"))
    others = Change(flag="other processes on the GPU", direction="lower")
    numbers = f"{gib(before)} free before, {gib(after)} after"
    return told_by(
        case, "memory given back", "memory-taken",
        f"another process held memory of the GPU and gave it back while this engine measured: {numbers}",
        free(others, "wait until they have ended, or start one engine after the other; then start it again", "time"),
    )  # fmt: skip


def memory_unbalanced(case: Case) -> Finding | None:
    """The GPUs of one group do not have the same memory free."""
    signs = case.signs("memory unbalanced")
    if not signs:
        return None
    late = case.start.phase in {"graphs", "warm-up"}
    cause = "after graphs were captured, so the draft model's check may simply be too strict" if late else ""
    return Finding(
        code="memory-unbalanced",
        severity="fatal",
        confidence="certain",
        claim=f"free memory differs between the GPUs by more than 10 %{f', {cause}' if cause else ''}",
        evidence=tuple(as_evidence(sign) for sign in signs[:2]),
        remedies=(
            Remedy(
                changes=(Change(flag="other processes on the GPUs", direction="lower"),),
                arithmetic="the GPU with least free memory sets the pool; a process left over, or GPUs of two sizes",
                cost="no pool",
            ),
        ),
    )


def state_pool_too_small(case: Case) -> Finding | None:
    """Recurrent layers keep a state for each request, and the budget holds too few."""
    signs = case.signs("state pool", "state blocks")
    if not signs:
        return None
    sign = signs[0]
    rest, each, blocks = sign.number("rest"), sign.number("each"), sign.number("blocks")
    if blocks is not None:
        claim = (
            f"the pool has {blocks:.0f} blocks for recurrent states and {sign.values['requests']} requests are promised"
        )
        requests = case.change("requests", "lower", f"{blocks:.0f}")
        changes = [Remedy(changes=(requests,), arithmetic=claim, cost="requests at once")] if requests else []
    else:
        slot = f", {each:.0f} MB each" if each is not None else ""
        left = f" with {rest:.2f} GiB left for states and cache" if rest is not None else ""
        claim = f"there is room for {sign.values['slots']} recurrent states{slot}{left}: not one request"
        changes = []
    pool = case.change("pool", "lower") if case.configuration is None or case.configuration.pool_tokens else None
    smaller = (
        Remedy(changes=(pool,), arithmetic="states and cache share one budget", cost="pool tokens") if pool else None
    )
    return Finding(
        code="state-pool-too-small",
        severity="fatal",
        confidence="certain",
        claim=claim,
        evidence=tuple(as_evidence(one) for one in signs[:2]),
        remedies=(*changes, *remedies.only(remedies.raise_fraction(case, None, claim), smaller)),
    )


def window_pool_too_small(case: Case) -> Finding | None:
    """Layers with a sliding window have a pool of their own, and it is too small."""
    signs = case.signs("window pool")
    if not signs:
        return None
    ratio = Change(flag="--swa-full-tokens-ratio", direction="raise")
    return Finding(
        code="window-pool-too-small",
        severity="fatal",
        confidence="certain",
        claim=f"the pool of the sliding-window layers has {signs[0].values['tokens']} tokens: too few for one request",
        evidence=(as_evidence(signs[0]),),
        remedies=(
            Remedy(changes=(ratio,), arithmetic="its share of the pool", cost="full-attention tokens"),
            *remedies.only(remedies.raise_fraction(case, None, "or a larger budget for both")),
        ),
    )


def multimodal_profile(case: Case) -> Finding | None:
    """The trial run assumes the most images and videos that a prompt may hold."""
    signs = case.signs("multimodal profile")
    if not signs:
        return None
    tokens = signs[0].values["tokens"]
    limit = Change(flag="--limit-mm-per-prompt", direction="lower")
    return Finding(
        code="multimodal-profile",
        severity="warning",
        confidence="certain",
        claim=f"the trial run must assume {tokens} tokens of images and videos in one prompt",
        evidence=(as_evidence(signs[0]),),
        remedies=(Remedy(changes=(limit,), arithmetic=f"{tokens} tokens in the worst case", cost="media per prompt"),),
    )
