"""Rules for what looks like memory and is not, for pools that run full while serving, and for deaths without a word."""

import msgspec

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case, as_evidence, gib, once
from draftmark.finding import Change, Finding, Remedy, Severity

_NOT_MEMORY = "no setting of memory changes this"
_LARGEST_OFFSET = 2**31
_CONSEQUENCES = ("root cause above", "stack trace above", "EngineDeadError", "Engine core initialization failed")
"""Exceptions by which the other processes report that one has failed: the reason is another."""


def illegal_access(case: Case) -> Finding | None:
    """A kernel read or wrote outside its buffers."""
    signs = case.signs("illegal access")
    if not signs:
        return None
    kernel = Change(flag="another attention backend", direction="set")
    tried = "another kernel for the same step tells whether it is that one; CUDA_LAUNCH_BLOCKING=1 names the call"
    changes = [Remedy(changes=(kernel,), arithmetic=tried, cost="speed")]
    overflow = _overflow(case)
    if overflow:
        wider = Change(flag="a kernel with 64-bit offsets", direction="set")
        changes.append(Remedy(changes=(wider,), arithmetic=overflow, cost="speed"))
    changes.append(Remedy(changes=(_no_help(case),), arithmetic=_NOT_MEMORY, cost="nothing"))
    claim = "a kernel accessed memory that is not its own: a bug in a kernel, not a lack of memory"
    return Finding(
        code="illegal-access",
        severity="fatal",
        confidence="certain",
        claim=f"{claim}; {overflow}" if overflow else claim,
        evidence=tuple(as_evidence(sign) for sign in signs[:3]),
        remedies=tuple(changes),
    )


def _overflow(case: Case) -> str:
    """Words on an overflow of 32 bits, where the pool is large enough for one; empty where it is not, or not known.

    A key is half of what a token has in the pool, and an element has two bytes at most.
    """
    size = case.number("pool_bytes")
    if size is None or size / 4 <= _LARGEST_OFFSET:
        return ""
    return (
        f"possible: an offset of 32 bits overflows (the pool of {gib(size)} has {size / 4:,.0f} elements of keys over "
        "all layers, more than 2^31; one layer has fewer)"
    )


def device_fault(case: Case) -> Finding | None:
    """The driver reported a fault of the GPU itself."""
    signs = case.signs("device fault")
    return _simple(
        case, "device-fault", "device fault", f"the driver reports a fault of the GPU (Xid {signs[0].values['xid']})"
        if signs else "", Change(flag="the GPU", direction="cannot help"), "reset or replace the device",
    )  # fmt: skip


def shared_memory(case: Case) -> Finding | None:
    """The processes of one engine talk through /dev/shm, and it is too small."""
    signs = case.signs("shared memory")
    sizes = [sign.values["bytes"] for sign in signs if "bytes" in sign.values]
    size = f", a segment of {int(sizes[0]):,} bytes" if sizes else ""
    return _simple(
        case,
        "shared-memory",
        "shared memory",
        f"shared memory could not be made{size}: /dev/shm is full or limited (a container gets 64 MB)",
        Change(flag="--shm-size of the container, or free /dev/shm", direction="raise", value="16g, or --ipc=host"),
        "one segment for each pair of ranks; segments that a crash left behind count too",
    )


def watchdog(case: Case) -> Finding | None:
    """The engine's own watchdog ended it because a step took too long."""
    signs = case.signs("watchdog")
    if case.failure is not None:
        return None  # the other ranks wait in vain for the one that ran out of memory
    seconds = next((sign.values["seconds"] for sign in signs if "seconds" in sign.values), None)
    after = f" after {seconds} s" if seconds else ""
    return _simple(
        case,
        "watchdog",
        "watchdog",
        f"the engine's watchdog ended it{after} without progress: a hang, not a lack of memory",
        _no_help(case),
        "find the hanging call in the stacks above the line; --watchdog-timeout only moves the end",
    )


def collective_timeout(case: Case) -> Finding | None:
    """PyTorch's watchdog ended a rank that waited for the others."""
    signs = case.signs("collective timeout")
    if case.failure is not None or case.signs("shared memory"):
        return None
    ranks = sorted({int(sign.values["rank"]) for sign in signs if "rank" in sign.values})
    waited = f" on rank {', '.join(map(str, ranks))}" if ranks else ""
    return _simple(
        case,
        "communication-error",
        "collective timeout",
        f"a collective operation did not end in time{waited}: PyTorch's watchdog, not the engine's; another rank is "
        "stuck or dead",
        Change(flag="TORCH_NCCL_TRACE_BUFFER_SIZE (PyTorch's flight recorder)", direction="set", value="2000"),
        "it records which rank did not come to the collective: look at that rank's stack and log",
    )


def oom_killer(case: Case) -> Finding | None:
    """The kernel killed a process because the host ran out of memory."""
    signs = list(case.signs("oom killer"))
    if not signs:
        return None
    program = next((sign.values["program"] for sign in signs if "program" in sign.values), None)
    compiler = program is not None and program in {"cicc", "ptxas", "nvcc", "cc1plus", "ninja"}
    if compiler:
        change = Change(flag="MAX_JOBS", direction="lower", value="1")
        why = f"{program} compiles kernels in parallel, several GB each, beside the weights"
    else:
        change = Change(flag="host memory (or the container's limit)", direction="raise")
        why = "the host's memory, not the GPU's"
    return Finding(
        code="host-oom-killer",
        severity="fatal",
        confidence="certain",
        claim=f"the kernel killed {program or 'a process'} because the host ran out of memory",
        evidence=tuple(as_evidence(sign) for sign in signs[:3]),
        remedies=(
            Remedy(changes=(change,), arithmetic=why, cost="start-up time" if compiler else "memory"),
            Remedy(changes=(_no_help(case),), arithmetic="it divides the GPU's memory", cost="nothing"),
        ),
    )


def killed(case: Case) -> Finding | None:
    """A process was killed from outside and could not say a word."""
    signs = case.signs("killed") + [
        sign for sign in case.signs("worker died") if sign.values.get("code") in {None, "None", "-9"}
    ]
    if not signs or case.failure is not None or case.signs("oom killer", "ended itself"):
        return None
    return Finding(
        code="killed",
        severity="fatal",
        confidence="possible",
        claim="a process was killed with SIGKILL and left no word: most often the kernel's OOM killer or a container's "
        "memory limit; `dmesg` or the cgroup's memory.events tell",
        evidence=tuple(as_evidence(sign) for sign in signs[:3]),
        remedies=(
            Remedy(
                changes=(Change(flag="host memory (or the container's limit)", direction="raise"),),
                arithmetic="if dmesg shows the OOM killer",
                cost="memory",
            ),
        ),
    )


def pool_exhausted(case: Case) -> Finding | None:
    """The engine's own pool ran full: no allocation failed."""
    fatal, full = case.signs("pool exhausted"), case.signs("pool full")
    if not fatal and not full:
        return None
    severity: Severity = "fatal" if fatal else "warning"
    window = next((sign.values["window"] for sign in full if "window" in sign.values), None)
    split = None
    if window is not None:
        change = Change(flag="--swa-full-tokens-ratio", direction="lower")
        split = Remedy(changes=(change,), arithmetic=f"window layers use {window} of their pool", cost="window tokens")
    pool = case.change("fraction", "raise") if case.fraction is None or case.fraction < 0.9 else None
    larger = Remedy(changes=(pool,), arithmetic="a larger pool", cost="headroom") if pool is not None else None
    what = "requests were put back and start again" if full and not fatal else "a request could not be continued"
    return Finding(
        code="pool-exhausted",
        severity=severity,
        confidence="certain",
        claim=f"the KV pool ran full while serving and {what}: the pool, not the GPU, was out of memory",
        evidence=tuple(as_evidence(sign) for sign in (*fatal[:2], *full[:2])),
        remedies=remedies.only(
            split, remedies.fewer_requests(case, "running requests x their length must fit into the pool"), larger
        ),
    )


def request_beyond_limit(case: Case) -> Finding | None:
    """A request was refused because it is longer than the pool or the context."""
    signs = case.signs("request beyond limit")
    if not signs:
        return None
    length, limit = signs[0].values["length"], signs[0].values["limit"]
    return Finding(
        code="request-beyond-limit",
        severity="warning",
        confidence="certain",
        claim=f"a request of {length} tokens was refused: the server takes {limit}. Where that is far less than the "
        "memory that is free, the pool was sized wrongly at the start",
        evidence=(as_evidence(signs[0]),),
        remedies=(
            Remedy(
                changes=(Change(flag="the pool", direction="raise"),),
                arithmetic=f"{length} > {limit}; `draftmark inspect` shows pool and free memory",
                cost="headroom",
            ),
        ),
    )


def sleep_residual(case: Case) -> Finding | None:
    """Memory that sleeping does not give back grows."""
    values = [value for sign in case.signs("sleep residual") if (value := sign.number("residual")) is not None]
    if len(values) < 2 or values[-1] <= values[0]:
        return None
    return Finding(
        code="sleep-residual",
        severity="warning",
        confidence="certain",
        claim=f"memory still held in sleep mode grew from {values[0]:.2f} to {values[-1]:.2f} GiB: a leak",
        evidence=tuple(as_evidence(sign) for sign in case.signs("sleep residual")[:3]),
    )


def silent_work(case: Case) -> Finding | None:
    """The log ends in the middle of a start with memory left and without an error."""
    start = case.start
    if start.failures or start.errors or start.signs:
        return None
    if start.phase not in {"weights", "profile", "graphs"} or not start.last:
        return None
    compiling = start.phase != "weights"
    what = "kernels may be compiling for minutes without a word" if compiling else "weights may be repacked for minutes"
    return Finding(
        code="silent-work",
        severity="note",
        confidence="possible",
        claim=f"the log ends in phase {start.phase} without an error: {what}; not a hang by that alone",
        evidence=tuple(start.last)[-2:],
        remedies=(
            Remedy(
                changes=(Change(flag="patience (--timeout)", direction="raise"),),
                arithmetic="wait, and look at CPU use: compilers run while it is silent",
                cost="time",
            ),
        ),
    )


def environment_trouble(case: Case) -> Finding | None:
    """Causes around the engine, each told by one line."""
    causes = (
        ("address in use", "address-in-use", "the port is taken", "--port", "set"),
        ("not installed", "not-installed", "the engine is not in the Python that was started", "--python", "set"),
        ("illegal instruction", "illegal-instruction", ("the build uses instructions that this CPU lacks, or a kernel "
         "was called with sizes that it does not support"), "another build of the engine", "set"),
        ("no kernel image", "wrong-build", "the build has no code for this GPU", "another build of the engine", "set"),
        ("disk full", "disk-full", "a disk is full", "disk space", "raise"),
        ("communication error", "communication-error", "NCCL failed; the lines above it say why (NCCL_DEBUG=INFO)",
         "NCCL_DEBUG=INFO", "set"),
    )  # fmt: skip
    if case.signs("shared memory") or case.failure is not None:
        return None
    for sign, code, claim, flag, direction in causes:
        if case.signs(sign):
            found = _simple(case, code, sign, claim, Change(flag=flag, direction=direction), claim)  # type: ignore[arg-type]
            if found is not None and code == "communication-error":
                return msgspec.structs.replace(found, confidence="possible")
            return found
    return None


def unknown(case: Case) -> Finding:
    """Nothing is known of it: the lines that a person should read."""
    start = case.start
    errors = sorted(start.last_errors, key=lambda seen: any(words in str(seen.value) for words in _CONSEQUENCES))
    lines = [*errors[:4], *list(start.last)[-4:]]
    return Finding(
        code="unknown",
        severity="note",
        confidence="possible",
        claim=f"no known cause; the engine was last in phase {start.phase}. These lines say most",
        evidence=once(lines),
    )


def _no_help(case: Case) -> Change:
    change = case.change("fraction", "cannot help")
    assert change is not None, "every engine has a memory fraction"
    return change


def _simple(case: Case, code: str, sign: str, claim: str, change: Change, why: str) -> Finding | None:
    """A fatal, certain finding from one kind of line."""
    signs = case.signs(sign)
    if not signs:
        return None
    return Finding(
        code=code,
        severity="fatal",
        confidence="certain",
        claim=claim,
        evidence=tuple(as_evidence(one) for one in signs[:3]),
        remedies=(Remedy(changes=(change,), arithmetic=why, cost="nothing"),),
    )
