"""From a log to findings, in order of certainty."""

from collections.abc import Callable
from typing import BinaryIO, Final

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.diagnose import (
    around,
    deaths,
    host_memory,
    limits,
    lookalikes,
    remedies,
    running_out,
    serving,
    sizing,
    system,
    unknown,
)
from draftmark.diagnose.case import Case
from draftmark.diagnose.log import Start, read
from draftmark.finding import Finding
from draftmark.observation import Phase

Rule = Callable[[Case], Finding | None]

RULES: Final[tuple[Rule, ...]] = (
    running_out.out_of_memory,
    running_out.fragmentation,
    sizing.pool_below_context,
    sizing.no_room_for_pool,
    sizing.memory_taken,
    sizing.memory_given_back,
    sizing.memory_unbalanced,
    sizing.state_pool_too_small,
    sizing.window_pool_too_small,
    sizing.multimodal_profile,
    limits.too_few_gpus,
    limits.context_beyond_model,
    sizing.no_headroom,
    host_memory.host_memory_short,
    host_memory.host_out_of_memory,
    host_memory.ray_memory_monitor,
    host_memory.oom_killer,
    host_memory.compiler_killed,
    lookalikes.illegal_access,
    lookalikes.device_fault,
    lookalikes.lone_xid,
    lookalikes.device_assert,
    lookalikes.shared_memory,
    lookalikes.kernel_tile,
    lookalikes.workspace,
    lookalikes.watchdog,
    lookalikes.collective_timeout,
    lookalikes.communication,
    lookalikes.waits_for_worker,
    lookalikes.health_check,
    lookalikes.silent_work,
    deaths.killed,
    deaths.crashed,
    serving.pool_exhausted,
    serving.request_beyond_limit,
    serving.sleep_residual,
    around.bad_arguments,
    around.settings_refused,
    around.port_taken,
    around.no_such_model,
    around.weights_unreadable,
    around.dtype_unsupported,
    around.driver_unfit,
    around.launcher_failed,
    around.not_installed,
    around.illegal_instruction,
    around.wrong_build,
    around.disk_full,
    system.too_many_files,
    system.permission_denied,
    system.library_missing,
    system.compiler_missing,
    system.build_mismatch,
)
"""Each looks at one start and says one thing or nothing."""

CODES: Final = (
    "prefill-oom", "decode-oom", "logits-oom", "encoder-oom", "graph-oom", "warm-up-oom", "profile-oom", "pool-oom",
    "lora-oom", "load-oom", "out-of-memory", "fragmented", "pool-below-context", "context-beyond-model",
    "no-room-for-pool", "no-headroom", "memory-taken", "memory-unbalanced", "state-pool-too-small",
    "window-pool-too-small", "multimodal-profile", "too-few-gpus", "host-memory-short", "host-out-of-memory",
    "host-oom-killer", "illegal-access", "device-fault", "device-assert", "shared-memory", "kernel-tile",
    "workspace-too-small",
    "watchdog", "communication-error", "waits-for-worker", "health-check-failed", "silent-work", "killed", "crashed",
    "pool-exhausted", "request-beyond-limit", "sleep-residual", "bad-arguments", "address-in-use", "no-such-model",
    "launcher-failed", "not-installed", "illegal-instruction", "wrong-build", "driver-mismatch", "dtype-unsupported",
    "weights-unreadable", "disk-full", "too-many-files", "permission-denied", "no-engine", "unknown",
)  # fmt: skip
"""Every code that a finding can have; docs/findings.md describes each."""

_CERTAINTY: Final = ("certain", "likely", "possible")
_SERVES: Final = frozenset({"ready", "prefill", "decode"})
_SEVERITY: Final = ("fatal", "warning", "note")


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says. Findings are of the last start that had trouble, the most certain first."""

    place: str
    engine: EngineName | None
    starts: int
    phase: Phase
    """Where the last start was when the log ended."""
    findings: tuple[Finding, ...]


def diagnose(stream: BinaryIO, place: str, configuration: Configuration | None = None) -> Diagnosis:
    """Read a log of any size in one pass and say why the engine died.

    Args:
        stream: the log's bytes.
        place: its name, shown with every line that is quoted.
        configuration: what the engine was asked to run, where that is known beside the log.
    """
    starts = read(stream, place)
    troubled = [start for start in starts if start.troubled] or [starts[-1]]
    findings = tuple(_placed(finding, troubled[-1], starts) for finding in examine(troubled[-1], configuration))
    last = starts[-1]
    return Diagnosis(place=place, engine=last.engine, starts=len(starts), phase=last.phase, findings=findings)


def _placed(finding: Finding, start: Start, starts: tuple[Start, ...]) -> Finding:
    """A finding that says which of several starts it is of, and how the last one fares where it is an earlier one."""
    if len(starts) == 1:
        return finding
    last = starts[-1]
    fares = ""
    if start is not last:
        fares = "; the last start serves" if last.phase in _SERVES else f"; the last start is in phase {last.phase}"
    claim = f"{finding.claim} (start {starts.index(start) + 1} of {len(starts)}{fares})"
    return msgspec.structs.replace(finding, claim=claim)


def examine(start: Start, configuration: Configuration | None) -> tuple[Finding, ...]:
    """Every rule's finding on one start; where none knows it, the lines that a person should read."""
    case = Case(start, configuration)
    found = [remedies.not_yet(finding, case) for rule in RULES if (finding := rule(case)) is not None]
    if not found and start.troubled and (start.last_errors or not start.errors):
        found = [unknown.unknown(case)]
    if not found and start.engine is None and not start.troubled:
        found = [unknown.no_engine(case)]
    return tuple(sorted((_outlived(finding, start) for finding in found), key=_order))


def _outlived(finding: Finding, start: Start) -> Finding:
    """A fatal finding, as a warning where the server went on after everything that proves it."""
    lines = [seen.source.line or 0 for seen in finding.evidence]
    if finding.severity != "fatal" or not lines or not start.survived(max(lines)):
        return finding
    claim = f"{finding.claim}; the server went on serving after it"
    return msgspec.structs.replace(finding, severity="warning", claim=claim)


def _order(finding: Finding) -> tuple[int, int]:
    return _CERTAINTY.index(finding.confidence), _SEVERITY.index(finding.severity)
