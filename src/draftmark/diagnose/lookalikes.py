"""Rules for what looks like a lack of memory and is none: faults, kernels, shared memory, hangs and waits."""

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case, as_evidence, gib
from draftmark.diagnose.log import MOST_OF_A_SIGN
from draftmark.diagnose.plain import ANOTHER_GPU, BLOCKING, SHARED_MEMORY, free, no_help, told_by
from draftmark.diagnose.signs import first_stated
from draftmark.finding import Change, Finding, Remedy

_LARGEST_OFFSET = 2**31


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
    changes.append(no_help(case))
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
    claim = f"the driver reports a fault of the GPU (Xid {signs[0].values['xid']})" if signs else ""
    remedy = free(
        ANOTHER_GPU, "where the fault comes again after a reset of this one (`nvidia-smi --gpu-reset`)", "a GPU"
    )
    return told_by(case, "device fault", "device-fault", claim, remedy)


def lone_xid(case: Case) -> Finding | None:
    """The driver reports trouble whose number does not say where it comes from, and nothing else does."""
    signs = case.signs("any Xid")
    told = case.signs("device fault", "illegal access", "asked to end")
    if not signs or told or case.failure is not None or case.raised:
        return None
    numbers = ", ".join(dict.fromkeys(sign.values["xid"] for sign in signs))
    return told_by(
        case,
        "any Xid",
        "device-fault",
        f"the driver reports Xid {numbers}: this alone does not tell a fault of the GPU from one of a kernel or driver",
        free(BLOCKING, "names the call in the engine's log, where it is a kernel's", "speed"),
        free(ANOTHER_GPU, "where it comes on this GPU only", "a GPU"),
        severity="warning",
        confidence="possible",
    )


def device_assert(case: Case) -> Finding | None:
    """A kernel found a value that it does not allow, and gave up."""
    signs = case.signs("device assert")
    condition = first_stated(signs, "condition")
    told = f" (`{condition}` does not hold)" if condition is not None else ""
    return told_by(
        case,
        "device assert",
        "device-assert",
        f"a kernel got a value that it does not allow{told}, mostly an index or token id out of range: not memory",
        free(BLOCKING, "the stack then shows the call that did it", "speed"),
        no_help(case),
    )


def shared_memory(case: Case) -> Finding | None:
    """The processes of one engine talk through /dev/shm, and it is too small."""
    sizes = [sign.values["bytes"] for sign in case.signs("shared memory") if "bytes" in sign.values]
    size = f", a segment of {int(sizes[0]):,} bytes" if sizes else ""
    return told_by(
        case,
        "shared memory",
        "shared-memory",
        f"shared memory could not be made{size}: /dev/shm is full or limited (a container gets 64 MB)",
        free(SHARED_MEMORY, "one segment for each pair of ranks; segments that a crash left behind count too"),
    )


def kernel_tile(case: Case) -> Finding | None:
    """A kernel asks for more on-chip memory than the GPU gives one block of threads."""
    signs = case.signs("kernel tile")
    stated = next((sign for sign in signs if "required" in sign.values), None)
    wants = "a kernel wants more registers or on-chip shared memory than this GPU gives one block"
    if stated is not None:
        limit = f" and this GPU has {stated.number('limit'):,.0f}" if "limit" in stated.values else ""
        wants = f"a kernel wants {stated.number('required'):,.0f} of {stated.values['resource']} a block{limit}"
    return told_by(
        case,
        "kernel tile",
        "kernel-tile",
        f"{wants}: its tile is too large for this kind of GPU. That is on-chip memory, neither /dev/shm nor the pool",
        free(Change(flag="another attention backend", direction="set"), "its kernels have other tiles", "speed"),
        free(
            Change(flag="the engine's version", direction="raise"),
            "tiles are chosen by kind of GPU, version by version",
        ),
        free(Change(flag="--shm-size", direction="cannot help"), "that is the host's memory"),
        no_help(case),
    )


def workspace(case: Case) -> Finding | None:
    """FlashInfer's own buffer is too small for a step: no allocation of the GPU's memory failed."""
    signs = case.signs("workspace")
    if not signs:
        return None
    wanted, left = signs[0].number("wanted") or 0, signs[0].number("left") or 0
    flag = {"vllm": "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"}.get(case.engine or "", "SGLANG_FLASHINFER_WORKSPACE_SIZE")
    return told_by(
        case,
        "workspace",
        "workspace-too-small",
        f"FlashInfer's workspace has {gib(left)} left and a step wants {gib(wanted)} of it: a buffer of fixed size, "
        "not the GPU's memory",
        free(Change(flag=flag, direction="raise"), "its bytes are allocated at the start", "as much headroom"),
        *remedies.only(remedies.smaller_chunk(case, "what a step wants of it grows with its tokens")),
        no_help(case),
    )


def watchdog(case: Case) -> Finding | None:
    """The engine's own watchdog ended it because a step took too long."""
    if case.failure is not None:
        return None  # the other ranks wait in vain for the one that ran out of memory
    seconds = first_stated(case.signs("watchdog"), "seconds")
    after = f" after {seconds} s" if seconds else ""
    return told_by(
        case,
        "watchdog",
        "watchdog",
        f"the engine's watchdog ended it{after} without progress: a hang, not a lack of memory",
        no_help(case, "find the hanging call in the stacks above the line; --watchdog-timeout only moves the end"),
    )


def collective_timeout(case: Case) -> Finding | None:
    """PyTorch's watchdog ended a rank that waited for the others."""
    if case.failure is not None or case.signs("shared memory"):
        return None
    ranks = sorted({int(sign.values["rank"]) for sign in case.signs("collective timeout") if "rank" in sign.values})
    waited = f" on rank {', '.join(map(str, ranks))}" if ranks else ""
    recorder = Change(flag="TORCH_NCCL_TRACE_BUFFER_SIZE", direction="set", value="2000")
    return told_by(
        case,
        "collective timeout",
        "communication-error",
        f"a collective operation did not end in time{waited}: PyTorch's watchdog, not the engine's; another rank is "
        "stuck or dead",
        free(recorder, "PyTorch's flight recorder tells which rank did not come: look at that rank's stack and log"),
    )


def communication(case: Case) -> Finding | None:
    """NCCL failed, and says why further up."""
    if case.failure is not None or case.signs("shared memory", "rendezvous port", "collective timeout"):
        return None
    if case.signs("memory for NCCL"):
        return _no_memory_for_nccl(case)
    claim = "NCCL failed; the lines above it say why (NCCL_DEBUG=INFO)"
    more = free(Change(flag="NCCL_DEBUG", direction="set", value="INFO"), "its log names the call and the peer")
    return told_by(case, "communication error", "communication-error", claim, more, confidence="possible")


def _no_memory_for_nccl(case: Case) -> Finding | None:
    """NCCL makes its buffers before the weights are loaded, and more of them when a group first talks."""
    began = case.start.phase == "init"
    others = Change(flag="other processes on the GPU", direction="lower")
    why = "nothing of this engine is on the GPU yet: `nvidia-smi` shows who holds it"
    return told_by(
        case,
        "memory for NCCL",
        "communication-error",
        "NCCL found no memory of the GPU for its buffers",
        *remedies.only(free(others, why) if began else remedies.lower_fraction(case)),
        confidence="likely",
    )


def waits_for_worker(case: Case) -> Finding | None:
    """One process of the engine waits for another, and says so every minute."""
    signs = case.signs("waits for a worker")
    if not signs or case.failure is not None or case.signs("worker died", "child died", "killed", "oom killer"):
        return None
    seconds = sum(sign.number("seconds") or 0 for sign in signs)
    more = "more than " if len(signs) >= MOST_OF_A_SIGN else ""
    patience = Change(flag="patience (--timeout)", direction="raise")
    return told_by(
        case,
        "waits for a worker",
        "waits-for-worker",
        f"a process has waited {more}{seconds:.0f} s for another one, which compiles, quantizes, loads, or hangs: a "
        "wait, no lack of memory, and no trouble of /dev/shm",
        free(patience, "compilers run meanwhile: look at CPU use; py-spy shows where a hanging worker is", "time"),
        no_help(case),
        severity="warning",
    )


def health_check(case: Case) -> Finding | None:
    """SGLang's health endpoint saw no answer from scheduler and detokenizer."""
    if case.failure is not None or case.signs("watchdog", "killed", "child died"):
        return None
    signs = case.signs("health check failed")
    seconds = signs[0].values["seconds"] if signs else ""
    limit = Change(flag="SGLANG_HEALTH_CHECK_TIMEOUT", direction="raise")
    return told_by(
        case,
        "health check failed",
        "health-check-failed",
        f"scheduler and detokenizer gave no sign for {seconds} s: a long prefill, a kernel that is compiled, or a hang",
        free(
            limit, f"now {seconds} s; whoever asks may restart a server that is only busy", "a dead one is seen later"
        ),
        *remedies.only(remedies.smaller_chunk(case, "between two chunks the scheduler answers")),
        severity="warning",
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
