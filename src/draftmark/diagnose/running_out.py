"""Rules for allocations that failed: the same message wants opposite changes in different phases."""

import re
from collections.abc import Callable
from typing import Final

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case, as_evidence, gib, once
from draftmark.diagnose.host_memory import failed_on_host
from draftmark.diagnose.log import Failure
from draftmark.finding import Confidence, Finding, Remedy
from draftmark.observation import Observation

Cure = Callable[[Case], tuple[Remedy, ...]]


def out_of_memory(case: Case) -> Finding | None:
    """The first failed allocation, named after what the engine was doing."""
    failure, captures = case.failure, case.signs("graph capture failed")
    sampler, pool = case.signs("warm-up sampler"), case.signs("pool allocation failed", "pool asked")
    if (failure is None and not captures and not sampler) or failed_on_host(case):
        return None
    if sampler:
        return _warm_up(case)
    kind = "graphs" if captures or failure is None else "pool" if pool else _kind(case, failure)
    code, what, confidence, cure = _KINDS.get(kind, _KINDS["unknown"])
    if confidence == "certain" and not _proved(case, kind):
        what, confidence = f"most likely {what}", "likely"
    evidence = _evidence(case, *(as_evidence(sign) for sign in (*captures, *pool, *case.signs("step"))))
    return Finding(
        code=code,
        severity="fatal",
        confidence=confidence,
        claim=f"out of memory {what}{_numbers(case)}",
        evidence=evidence,
        remedies=(*remedies.only(remedies.fewer_others(case)), *cure(case)),
    )


def _kind(case: Case, failure: Failure) -> str:
    """What the memory was for, by the functions on the stack, else by the phase."""
    place = failure.place
    if place is not None and place.subject in {"encoder", "adapters"}:
        return place.subject
    if place is not None and place.activity == "logits":
        return "logits"
    told = place is not None and place.phase == failure.phase
    if case.engine == "vllm" and failure.phase in {"ready", "prefill", "decode"} and not told:
        return _step(case)
    if failure.phase == "weights" and case.number("pool_tokens") is not None:
        return "draft"
    return {"weights": "load", "ready": "serving"}.get(failure.phase, failure.phase)


def _step(case: Case) -> str:
    """vLLM's steps hold prefill and decode together, and its log tells only how many requests run: what it dumps of the
    step that failed tells which it was."""
    drafted = case.settings.number("--num-speculative-tokens", "--num-spec-tokens") or 0
    for sign in case.signs("step"):
        tokens = [int(number) for number in re.findall(r": (\d+)(?:,|$)", sign.values["each"])]
        if tokens:
            return "prefill" if max(tokens) > 1 + drafted else "decode"
    return "serving"


def fragmentation(case: Case) -> Finding | None:
    """The allocator held enough, in pieces."""
    remedy = remedies.expandable_segments(case)
    failure = case.failure
    if remedy is None or failure is None or failure.phase in {"weights", "init"}:
        return None
    if any(case.is_so_already(change) for change in remedy.changes):
        return None
    missing, stranded = remedies.missing_bytes(case) or 0, case.failed("reserved_unallocated") or 0
    return Finding(
        code="fragmented",
        severity="warning",
        confidence="certain",
        claim=f"only {gib(missing)} were missing, and fragmentation had stranded {gib(stranded)}",
        evidence=failure.observations[:1],
        remedies=(remedy,),
    )


def _proved(case: Case, kind: str) -> bool:
    """Whether more than the last marker before it tells what the engine was doing.

    Between weights, pool and the next marker many things are allocated; and cuBLAS makes its handle in whichever step
    needs it first.
    """
    failure = case.failure
    if failure is None or kind in {"encoder", "adapters"}:
        return True
    if (failure.place is not None and failure.place.phase == failure.phase) or case.signs("step"):
        return True
    if kind == "pool":
        return bool(case.signs("pool allocation failed", "pool asked"))
    return "CUBLAS_STATUS_ALLOC_FAILED" not in str(failure.observations[0].value)


def _warm_up(case: Case) -> Finding:
    sign = case.signs("warm-up sampler")[0]
    requests = sign.number("requests")
    what = sign.values.get("what", "sampler")
    claim = f"out of memory while the {what} was warmed up with {requests:.0f} requests{_numbers(case)}"
    why = "the warm-up makes logits for every request at once: requests x vocabulary x 4 bytes"
    fewer = remedies.fewer_requests(case, why, tried=int(requests) if requests is not None else None)
    return Finding(
        code="warm-up-oom",
        severity="fatal",
        confidence="certain",
        claim=claim,
        evidence=_evidence(case, as_evidence(sign)),
        remedies=remedies.only(fewer, remedies.lower_fraction(case)),
    )


def _serving(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(
        remedies.expandable_segments(case), remedies.smaller_chunk(case), remedies.lower_fraction(case)
    )


def _logits(case: Case) -> tuple[Remedy, ...]:
    why = "log-probabilities of a prompt take chunk x vocabulary x 6 bytes at once"
    return remedies.only(remedies.smaller_chunk(case, why), remedies.lower_fraction(case))


def _decode(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(
        remedies.expandable_segments(case),
        remedies.lower_fraction(case),
        remedies.fewer_requests(case, "what a decode step needs grows with the requests in it"),
    )


def _encoder(case: Case) -> tuple[Remedy, ...]:
    flag = {"vllm": "--limit-mm-per-prompt", "sglang": "--limit-mm-data-per-request"}.get(case.engine or "")
    size = {"vllm": "--mm-processor-kwargs", "sglang": "--mm-process-config"}.get(case.engine or "")
    fewer = remedies.lower(flag, "an encoder takes all images and videos of a step at once", "media per request")
    smaller = remedies.lower(size, "fewer pixels an image (max_pixels) are fewer tokens", "detail of images")
    sizing = case.start.phase in {"init", "weights", "profile"}
    return remedies.only(
        remedies.expandable_segments(case), fewer, smaller, None if sizing else remedies.lower_fraction(case)
    )


def _adapters(case: Case) -> tuple[Remedy, ...]:
    most = {"vllm": "--max-loras", "sglang": "--max-loras-per-batch"}.get(case.engine or "")
    why = "the pool of adapters has a slot for each, as large as the largest rank, in every layer"
    sized = case.engine == "sglang"  # vLLM makes the slots with the weights, before it sizes its pool
    return remedies.only(
        remedies.lower(most, why, "adapters at once"),
        remedies.lower("--max-lora-rank", why, "adapters of a larger rank") if most is not None else None,
        remedies.lower_fraction(case) if sized else None,
    )


def _graphs(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(remedies.fewer_graphs(case), remedies.lower_fraction(case))


def _pool(case: Case) -> tuple[Remedy, ...]:
    requests = None
    if case.signs("pool asked"):
        requests = remedies.fewer_requests(case, "this engine reserves requests x context")
    shorter = remedies.shorter_context(case, None) if case.engine is None else None
    return remedies.only(shorter, requests, remedies.lower_fraction(case) if case.engine is not None else None)


def _load(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(remedies.more_gpus(case, "the weights alone do not fit; no fraction changes that"))


def _draft(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(
        remedies.lower_fraction(case), remedies.more_gpus(case, "each GPU then holds less of both models")
    )


def _profile(case: Case) -> tuple[Remedy, ...]:
    return remedies.only(
        remedies.smaller_chunk(case, "the trial run uses a full chunk"),
        remedies.fewer_requests(case, "the trial run samples for the most requests"),
    )


def _none(case: Case) -> tuple[Remedy, ...]:  # noqa: ARG001
    return ()


_KINDS: Final[dict[str, tuple[str, str, Confidence, Cure]]] = {
    "prefill": ("prefill-oom", "at the activation peak of a prefill step", "certain", _serving),
    "serving": (
        "prefill-oom",
        "while serving, most likely at the activation peak of a prefill step",
        "likely",
        _serving,
    ),
    "logits": ("logits-oom", "while log-probabilities were computed", "certain", _logits),
    "decode": ("decode-oom", "in a decode step", "certain", _decode),
    "graphs": ("graph-oom", "while CUDA graphs were captured", "certain", _graphs),
    "warm-up": ("warm-up-oom", "during the warm-up, after the pool was made", "likely", _graphs),
    "pool": ("pool-oom", "while the pool was allocated", "certain", _pool),
    "load": ("load-oom", "while the weights were loaded", "certain", _load),
    "draft": ("load-oom", "while a draft model was loaded beside the pool that was made already", "certain", _draft),
    "encoder": ("encoder-oom", "while images or videos were encoded", "certain", _encoder),
    "adapters": ("lora-oom", "while the pool of LoRA adapters was filled or made", "certain", _adapters),
    "profile": ("profile-oom", "in the trial run before the pool is sized", "certain", _profile),
    "unknown": ("out-of-memory", "in a phase that the log does not show", "possible", _none),
}
"""By what the engine was doing: code, words, how sure, and what to change."""


def _numbers(case: Case) -> str:
    """`: tried 896 MiB, 893 MiB free, missed by 3 MiB, with 1.40 GiB stranded by fragmentation`."""
    tried, free, missing = case.failed("tried"), case.failed("free_at_failure"), remedies.missing_bytes(case)
    stranded, private, others = case.failed("reserved_unallocated"), case.failed("private_pools"), case.others
    parts = [
        f"tried {gib(tried)}" if tried is not None else "",
        f"{gib(free)} free" if free is not None else "",
        f"missed by {gib(missing)}" if missing is not None else "",
        f"with {gib(stranded)} stranded by fragmentation" if stranded and missing and stranded >= missing else "",
        f"{gib(private)} in private pools of graphs" if private else "",
        f"{gib(sum(others.values()))} held by other processes ({', '.join(map(str, others))})" if others else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f": {said}" if said else ""


def _evidence(case: Case, *more: Observation) -> tuple[Observation, ...]:
    failed = case.failure.observations[:1] if case.failure is not None else ()
    settings = [seen for name in ("memory_fraction", "chunk", "pool_tokens") if (seen := case.seen(name)) is not None]
    left = [one for one in case.start.observations if one.quantity == "free" and one.phase in {"warm-up", "ready"}]
    return once((*failed, *more[:3], *settings, *left[-1:]))
