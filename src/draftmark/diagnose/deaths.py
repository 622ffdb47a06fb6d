"""Rules for processes that end by a signal and leave no word."""

import signal
from collections.abc import Iterator
from typing import Final

from draftmark.diagnose.case import Case, as_evidence
from draftmark.diagnose.plain import HOST_MEMORY, SHARED_MEMORY, free
from draftmark.diagnose.signs import Sign
from draftmark.finding import Change, Finding, Remedy

_KILL: Final = signal.SIGKILL
_BUS: Final = signal.SIGBUS
_REASONS: Final = (
    "illegal access", "device assert", "illegal instruction", "device fault", "shared memory", "watchdog",
    "collective timeout", "communication error",
)  # fmt: skip
"""Signs that say more of a crash than its signal."""
_NAMES: Final = {"Segmentation fault": signal.SIGSEGV, "Bus error": signal.SIGBUS, "Aborted": signal.SIGABRT}


def killed(case: Case) -> Finding | None:
    """A process was killed from outside and could not say a word."""
    workers = case.signs("worker died")
    wordless = [one for one in workers if "exit" not in one.values and one.values.get("code", "None") == "None"]
    by_signal = [*case.signs("killed"), *(sign for sign, number in _died(case) if number == _KILL)]
    signs = [*by_signal, *wordless]
    how = "was killed with SIGKILL" if by_signal else "died"
    explained = case.signs("oom killer", "compiler killed", "Ray's memory monitor", "ended itself", "asked to end")
    if not signs or case.failure is not None or explained or case.raised or _crashes(case):
        return None
    return Finding(
        code="killed",
        severity="fatal",
        confidence="possible",
        claim=f"a process {how} and left no word: most often the kernel's OOM killer or a container's memory limit; "
        "`dmesg` or the cgroup's memory.events tell",
        evidence=tuple(as_evidence(sign) for sign in signs[:3]),
        remedies=(free(HOST_MEMORY, "if dmesg shows the OOM killer", "memory"),),
    )


def crashed(case: Case) -> Finding | None:
    """A process of the engine ended by a signal of its own making: a bug in native code, or memory that is gone."""
    found = _crashes(case)
    if not found or case.failure is not None or case.raised or case.signs(*_REASONS):
        return None
    name = signal.Signals(found[0][1]).name
    return Finding(
        code="crashed",
        severity="fatal",
        confidence="certain",
        claim=f"a process of the engine crashed with {name} in phase {case.start.phase} and raised no exception: a "
        "fault in native code",
        evidence=tuple(as_evidence(sign) for sign, _ in found[:3]),
        remedies=_look_closer(found[0][1], stack=bool(case.signs("segfault"))),
    )


def _crashes(case: Case) -> list[tuple[Sign, int]]:
    """Processes that ended by a signal of their own making."""
    return [(sign, number) for sign, number in _died(case) if number != _KILL]


def _look_closer(number: int, *, stack: bool) -> tuple[Remedy, ...]:
    """What tells more; `stack` where the stack is in the log already."""
    handler = Change(flag="PYTHONFAULTHANDLER", direction="set", value="1")
    stacks = () if stack else (free(handler, "its stack is then in the log"),)
    kernel = free(
        Change(flag="another attention backend", direction="set"), "tells whether it is that library", "speed"
    )
    if number == _BUS:
        return (free(SHARED_MEMORY, "a mapped file whose memory is gone: mostly a full /dev/shm"), *stacks)
    return (*stacks, kernel)


def _died(case: Case) -> Iterator[tuple[Sign, int]]:
    """Every process that ended by a signal, with the signal's number."""
    for sign in case.signs("child died", "segfault"):
        fault = sign.values.get("fault") or sign.values.get("fatal")
        status, code = sign.values.get("status"), sign.values.get("code")
        if "signal" in sign.values:
            yield sign, int(sign.values["signal"])
        elif "name" in sign.values:
            yield sign, signal.Signals[sign.values["name"]]
        elif status is not None:
            yield sign, int(status) & 0x7F  # what os.waitpid gives: the signal, and 128 for a core
        elif code is not None:
            yield sign, -int(code) if int(code) < 0 else int(code) - 128
        else:
            yield sign, _NAMES.get(fault or "", signal.SIGSEGV)
