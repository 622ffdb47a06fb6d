"""Findings that one kind of line proves."""

from typing import Final

from draftmark.diagnose.case import Case, as_evidence
from draftmark.finding import Change, Confidence, Finding, Remedy, Severity

NOT_MEMORY: Final = "no setting of memory changes this"
SHARED_MEMORY: Final = Change(
    flag="--shm-size of the container, or free /dev/shm", direction="raise", value="16g, or --ipc=host"
)

HOST_MEMORY: Final = Change(flag="host memory (or the container's limit)", direction="raise")
BLOCKING: Final = Change(flag="CUDA_LAUNCH_BLOCKING", direction="set", value="1")
ANOTHER_GPU: Final = Change(flag="another GPU", direction="set")


def told_by(
    case: Case,
    sign: str,
    code: str,
    claim: str,
    *remedies: Remedy,
    severity: Severity = "fatal",
    confidence: Confidence = "certain",
) -> Finding | None:
    """A finding with the lines of one sign as evidence; None where there are none."""
    signs = case.signs(sign)
    if not signs:
        return None
    return Finding(
        code=code,
        severity=severity,
        confidence=confidence,
        claim=claim,
        evidence=tuple(as_evidence(one) for one in signs[:3]),
        remedies=remedies,
    )


def free(change: Change, why: str, cost: str = "nothing") -> Remedy:
    """One change with its reason."""
    return Remedy(changes=(change,), arithmetic=why, cost=cost)


def no_help(case: Case, why: str = NOT_MEMORY) -> Remedy:
    """People turn the memory fraction in vain here."""
    change = case.change("fraction", "cannot help")
    assert change is not None, "every engine has a memory fraction"
    return free(change, why)
