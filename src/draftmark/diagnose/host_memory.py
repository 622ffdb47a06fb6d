"""Rules for the host's memory, which is not the GPU's: Python, PyTorch and pinning, Ray, compilers, and the kernel."""

import re
from typing import Final

from draftmark.diagnose.case import Case, as_evidence
from draftmark.diagnose.plain import HOST_MEMORY, free, no_help, told_by
from draftmark.diagnose.signs import first_stated
from draftmark.diagnose.signs.host import COMPILERS
from draftmark.finding import Change, Finding, Remedy

_HOST: Final = re.compile(
    r"DefaultCPUAllocator|\bMemoryError|ArrayMemoryError|bad_alloc|Cannot allocate memory|cudaHost(?:Alloc|Register)"
)
_OF_THE_DEVICE_ON_CPUS: Final = "DefaultCPUAllocator"
_DIVIDES: Final = "it divides the GPU's memory"
_PINNED: Final = {
    "sglang": "--hicache-ratio or --hicache-size",
    "vllm": "--kv-offloading-size, --swap-space or --cpu-offload-gb",
}
"""Flags by which an engine pins memory of the host."""


def failed_on_host(case: Case) -> bool:
    """Whether the first allocation that failed was one of the host's memory, beside a device with its own.

    An engine on CPUs has no other; what fails there before anything was loaded is no question of how it is divided.
    """
    failure = case.failure
    if failure is None:
        return False
    said = str(failure.observations[0].value)
    if case.on_cpu:
        return failure.phase == "init" and failure.place is None and _HOST.search(said) is not None
    pinning = failure.place is not None and failure.place.subject == "pinning" and case.failed("tried") is None
    if _OF_THE_DEVICE_ON_CPUS in said:
        return case.on_cpu is False
    return pinning or _HOST.search(said) is not None


def host_out_of_memory(case: Case) -> Finding | None:
    """An allocation of the host's memory failed, by its own words."""
    pinned = case.signs("pinning")
    if not pinned and not failed_on_host(case):
        return None
    failure = case.failure
    pinning = bool(pinned) or (failure is not None and failure.place is not None and failure.place.subject == "pinning")
    evidence = (*(as_evidence(sign) for sign in pinned[:2]), *(failure.observations[:1] if failure is not None else ()))
    what = "memory of the host could not be pinned for the GPU" if pinning else "the host's memory ran out"
    apart = "before the engine had loaded anything" if case.on_cpu else "this is not the GPU's memory"
    remedies = [_less_pinned(case)] if pinning else []
    return Finding(
        code="host-out-of-memory",
        severity="fatal",
        confidence="likely" if pinning and not pinned else "certain",
        claim=f"{what}: {apart}",
        evidence=evidence,
        remedies=(
            *remedies,
            free(
                HOST_MEMORY, "the limit of the container, of the service, or `ulimit -v` and `-l`, count too", "memory"
            ),
            *(() if case.on_cpu else (no_help(case, _DIVIDES),)),
        ),
    )


def _less_pinned(case: Case) -> Remedy:
    flag = _PINNED.get(case.engine or "", "what the engine keeps in the host's memory")
    return free(Change(flag=flag, direction="lower"), "pinned memory cannot be swapped out", "host cache")


def ray_memory_monitor(case: Case) -> Finding | None:
    """Ray kills a worker before the kernel would."""
    signs = case.signs("Ray's memory monitor")
    numbers = next((sign.values for sign in signs if "used" in sign.values), None)
    used = f": {numbers['used']} of {numbers['total']} GB used, threshold {numbers['threshold']}" if numbers else ""
    threshold = Change(flag="RAY_memory_usage_threshold", direction="raise")
    return told_by(
        case,
        "Ray's memory monitor",
        "host-out-of-memory",
        f"Ray's memory monitor killed a worker because the host's memory ran out{used}; not the GPU's",
        free(HOST_MEMORY, "workers load checkpoints through it, each its own share", "memory"),
        free(threshold, "only where the host has memory to spare below it", "the kernel may kill instead"),
        no_help(case, _DIVIDES),
    )


def compiler_killed(case: Case) -> Finding | None:
    """A compiler of kernels was killed: the host's memory, and too many at once."""
    signs = case.signs("compiler killed")
    if not signs or case.signs("oom killer"):
        return None
    names = ("program", "terminated", "named")
    program = first_stated(signs, *names) or "a compiler"
    return told_by(
        case,
        "compiler killed",
        "host-oom-killer",
        f"{program} was killed with SIGKILL while kernels were compiled: most likely the host's memory ran out",
        *_fewer_jobs(case, program),
        no_help(case, _DIVIDES),
        confidence="likely",
    )


def oom_killer(case: Case) -> Finding | None:
    """The kernel killed a process because the host ran out of memory."""
    signs = case.signs("oom killer")
    program = first_stated(signs, "program")
    compiler = program is not None and program in COMPILERS
    raise_host = free(HOST_MEMORY, "the host's memory, not the GPU's", "memory")
    return told_by(
        case,
        "oom killer",
        "host-oom-killer",
        f"the kernel killed {program or 'a process'} because the host, or its container's limit, ran out of memory",
        *(_fewer_jobs(case, program or "") if compiler else (raise_host,)),
        no_help(case, _DIVIDES),
    )


def _fewer_jobs(case: Case, program: str) -> tuple[Remedy, ...]:
    jobs = Change(flag="MAX_JOBS", direction="lower", value="1")
    fewer = free(jobs, f"{program} compiles kernels in parallel, several GB each, beside the weights", "start-up time")
    if case.is_so_already(jobs):
        return (fewer, free(HOST_MEMORY, f"one {program} at a time takes more than there is", "memory"))
    return (fewer,)


def host_memory_short(case: Case) -> Finding | None:
    """A cache in the host's memory was asked for that the host does not have."""
    signs = case.signs("host memory short")
    if not signs:
        return None
    numbers = f"{signs[0].values['wanted']} GB wanted, {signs[0].values['free']} GB free"
    change = Change(flag=_PINNED["sglang"], direction="lower")
    why = f"{numbers}; memory reserved for huge pages does not count as free"
    claim = f"the host has not enough memory for the hierarchical cache: {numbers}"
    return told_by(case, "host memory short", "host-memory-short", claim, free(change, why, "host cache"))
