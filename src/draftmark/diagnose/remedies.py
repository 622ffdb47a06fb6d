"""What can be changed, with its arithmetic: each remedy is built here once, and the rules choose and order them."""

import math

import msgspec

from draftmark.diagnose.case import Case, gib
from draftmark.diagnose.knobs import CHUNK, HIGH_FRACTION, LEAST_CHUNK
from draftmark.finding import Change, Finding, Remedy
from draftmark.units import MIB

_MARGIN = 64 * MIB
"""Bytes beyond what was missing, so that the next allocation does not fail in its turn."""


def expandable_segments(case: Case) -> Remedy | None:
    """Use what the allocator holds in pieces; None where that would not be enough, or the engine does not stand it.

    vLLM refuses expandable segments beside any KV connector (`_verify_kv_transfer_compat`, 0.32.0).
    """
    stranded, missing = case.failed("reserved_unallocated"), missing_bytes(case)
    if stranded is None or missing is None or stranded < missing or case.settings.on("--kv-transfer-config"):
        return None
    reduce = ""
    if (case.gpus or 1) > 1 and not case.settings.on("--disable-custom-all-reduce"):
        reduce = "; with several GPUs the engine's custom all-reduce may not stand it (--disable-custom-all-reduce)"
    return Remedy(
        changes=(Change(flag=case.allocator, direction="set", value="expandable_segments:True"),),
        arithmetic=f"{gib(missing)} were missing while {gib(stranded)} were reserved but in pieces too small to use",
        cost=f"no pool{reduce}",
    )


def smaller_chunk(case: Case, what: str = "activations of a prefill step grow with its tokens") -> Remedy | None:
    """Halve the chunk; cut prompts at all where they are not cut."""
    if case.whole_prompts:
        why = f"{what}; now whole prompts are one step each"
        return _remedy(_cut_prompts(case), why, "no pool; prefill takes more steps")
    chunk = case.chunk
    if chunk is not None and chunk // 2 < LEAST_CHUNK:
        return None
    change = case.change("chunk", "lower", str(chunk // 2) if chunk is not None else None)
    now = f"; now {chunk}" if chunk is not None else ""
    return _remedy(change, f"{what}{now}", "no pool; prefill takes more steps")


def lower_fraction(case: Case) -> Remedy | None:
    """Leave more memory outside the pool: by what was missing and a margin, where both are known."""
    if case.explicit_pool is not None:
        return _smaller_pool(case, case.explicit_pool)
    missing, capacity, fraction = missing_bytes(case), case.capacity, case.fraction
    if missing is None or capacity is None or fraction is None or not 0 < fraction <= 1:
        change = case.change("fraction", "lower")
        now = f"; now {fraction:g}" if fraction is not None else ""
        return _remedy(change, f"the pool takes what the failed allocation needed{now}", "pool tokens")
    needed = missing + _MARGIN
    value = math.floor((fraction - needed / capacity) * 1000) / 1000
    weights = (case.number("weights") or 0) + (case.number("draft_weights") or 0)
    if value * capacity <= weights:
        why = f"{fraction:g} x {gib(capacity)} without {gib(needed)} does not hold the weights ({gib(weights)})"
        return _remedy(case.change("fraction", "cannot help"), why, "nothing")
    freed = (fraction - value) * capacity
    each = case.bytes_per_token
    cost = f"{gib(freed)} of pool" + (f", about {freed / each:,.0f} tokens" if each else "")
    arithmetic = (
        f"{gib(missing)} missing + {gib(_MARGIN)} margin = {needed / capacity:.4f} of {gib(capacity)}; "
        f"{fraction:g} -> {value:g}"
    )
    return _remedy(case.change("fraction", "lower", f"{value:g}"), arithmetic, cost)


def _smaller_pool(case: Case, given: float) -> Remedy | None:
    """A pool of a size that was given: that is what has to go down, and no fraction changes it."""
    missing, each = missing_bytes(case), 1.0 if case.engine == "vllm" else case.bytes_per_token
    why = f"the pool's size was given, so the fraction does not decide it; now {given:.0f}"
    if missing is None or each is None or given * each <= missing + _MARGIN:
        return _remedy(case.change("pool", "lower"), why, "pool tokens")
    value = math.floor(given - (missing + _MARGIN) / each)
    why = f"{why}; {gib(missing)} missing + {gib(_MARGIN)} margin"
    return _remedy(case.change("pool", "lower", f"{value}"), why, f"{gib(missing + _MARGIN)} of pool")


def raise_fraction(case: Case, least: float | None, why: str) -> Remedy | None:
    """Give the pool more; None where there is nothing left to give."""
    if case.explicit_pool is not None:
        told = f"{why}; the pool's size was given, so the fraction does not decide it"
        return _remedy(case.change("pool", "raise"), told, "room for activations; check the load afterwards")
    fraction = case.fraction
    if (least is not None and least > HIGH_FRACTION) or (fraction is not None and fraction >= HIGH_FRACTION):
        return None
    value = f"above {least:.3f}" if least is not None and least > 0 else None
    return _remedy(case.change("fraction", "raise", value), why, "room for activations; check the load afterwards")


def more_gpus(case: Case, why: str) -> Remedy | None:
    """Split the model over twice the GPUs: heads and experts divide by powers of two."""
    now = f"; now {case.gpus}" if case.gpus is not None else ""
    value = str(2 * case.gpus) if case.gpus is not None else None
    return _remedy(case.change("gpus", "raise", value), f"{why}{now}", "more GPUs")


def shorter_context(
    case: Case, possible: float | None, why: str = "the longest request must fit into the pool"
) -> Remedy | None:
    """Promise shorter requests."""
    value = f"{possible:.0f}" if possible is not None else None
    return _remedy(case.change("context", "lower", value), why, "long requests")


def fewer_requests(case: Case, why: str, *, tried: int | None = None, fitted: int | None = None) -> Remedy | None:
    """Fewer requests at once: half of the most, or of those that ran where they were fewer.

    Args:
        case: the start.
        why: what grows with the requests.
        tried: how many there were when it failed, where the failure itself tells.
        fitted: how many went on well, where that is known.
    """
    most, ran = case.requests, tried or case.start.running
    bound = ran if ran and (most is None or ran < most) else most
    value = str(fitted or bound // 2) if bound is not None and bound >= 2 else None
    now = f"; now {most}" if most is not None else ""
    if ran and bound == ran:
        now = f"{now}; {ran} at once when it failed"
    return _remedy(case.change("requests", "lower", value), f"{why}{now}", "throughput at high concurrency")


def fewer_graphs(case: Case) -> Remedy | None:
    """Capture fewer batch sizes."""
    now = case.captured
    value = str(int(now) // 2) if now is not None and now >= 2 else None
    why = "each captured batch size holds memory of its own" + (f"; now up to {now:.0f}" if now is not None else "")
    return _remedy(case.change("graphs", "lower", value), why, "speed of large batches")


def lower(flag: str | None, why: str, cost: str) -> Remedy | None:
    """Lower a flag that only one engine has; None where it has none."""
    return _remedy(Change(flag=flag, direction="lower") if flag is not None else None, why, cost)


def fewer_others(case: Case) -> Remedy | None:
    """Let other processes leave the GPU, where that would have been enough."""
    held, missing = sum(case.others.values()), missing_bytes(case)
    if not held or (missing is not None and held < missing):
        return None
    why = f"they hold {gib(held)}" + (f", and {gib(missing)} were missing" if missing is not None else "")
    change = Change(flag="other processes on the GPU", direction="lower")
    return _remedy(change, why, "no pool")


def only(*remedies: Remedy | None) -> tuple[Remedy, ...]:
    """Those that apply, in order."""
    return tuple(remedy for remedy in remedies if remedy is not None)


def missing_bytes(case: Case) -> float | None:
    """By how much the allocation missed."""
    tried, free = case.failed("tried"), case.failed("free_at_failure")
    return tried - free if tried is not None and free is not None and tried > free else None


def not_yet(finding: Finding, case: Case) -> Finding:
    """A finding without the changes that are made already; where none is left, it says so."""
    kept, done = [], []
    for remedy in finding.remedies:
        changes = tuple(change for change in remedy.changes if not case.is_so_already(change))
        done += [change.flag for change in remedy.changes if change not in changes]
        if changes:
            kept.append(msgspec.structs.replace(remedy, changes=changes))
    if not done:
        return finding
    claim = finding.claim
    if not any(change.direction != "cannot help" for remedy in kept for change in remedy.changes):
        claim = f"{claim}; what would be next is set already or cannot go further: {', '.join(done)}"
    return msgspec.structs.replace(finding, claim=claim, remedies=tuple(kept))


def _cut_prompts(case: Case) -> Change | None:
    if case.engine == "vllm":
        return Change(flag="--enable-chunked-prefill", direction="set")
    return case.change("chunk", "set", str(CHUNK))


def _remedy(change: Change | None, arithmetic: str, cost: str) -> Remedy | None:
    return Remedy(changes=(change,), arithmetic=arithmetic, cost=cost) if change is not None else None
