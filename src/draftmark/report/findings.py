"""Findings for the terminal: claim, proof, arithmetic, remedy."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from draftmark.finding import Change, Finding, Remedy
from draftmark.observation import Observation
from draftmark.report.quantities import quantity

_STYLE = {"fatal": "bold red", "warning": "yellow", "note": "cyan"}


def findings(found: Sequence[Finding]) -> Group:
    """All findings, one block each, in the order given."""
    return Group(*(_finding(finding) for finding in found))


def _finding(finding: Finding) -> Text:
    text = Text()
    text.append(f"{finding.severity}: ", style=_STYLE[finding.severity])
    text.append(f"{finding.claim} [{finding.code}, {finding.confidence}]\n")
    for seen in finding.evidence:
        text.append(f"    {evidence_line(seen)}\n", style="dim")
    for number, remedy in enumerate(finding.remedies, 1):
        text.append(f"    {number}. {remedy_line(remedy)}\n")
    return text


def evidence_line(seen: Observation) -> str:
    """A log line with its place, or a number with how it came about."""
    if seen.source.line is not None:
        return f"{seen.source.place}:{seen.source.line}: {seen.source.text}"
    return f"{seen.quantity} {quantity(seen.value, seen.unit)} ({seen.source.place}: {seen.source.text})"


def remedy_line(remedy: Remedy) -> str:
    """Changes, arithmetic and cost in one line."""
    changes = ", ".join(_change(change) for change in remedy.changes)
    what = f"{changes}: " if changes else ""
    return f"{what}{remedy.arithmetic} (costs: {remedy.cost})"


def _change(change: Change) -> str:
    if change.direction == "cannot help":
        return f"{change.flag} cannot help"
    value = f" to {change.value}" if change.value is not None else ""
    return f"{change.direction} {change.flag}{value}"
