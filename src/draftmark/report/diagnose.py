"""A diagnosis for the terminal."""

from rich.console import Group
from rich.text import Text

from draftmark.diagnose import Diagnosis
from draftmark.report.findings import findings


def diagnosis(found: Diagnosis) -> Group:
    """What kind of log it is and where it ends, then every finding."""
    engine = found.engine or "an engine that is not known"
    starts = f"{found.starts} starts" if found.starts > 1 else "1 start"
    head = Text(f"{found.place}: {engine}, {starts}, ends in phase {found.phase}", style="bold")
    if not found.findings:
        return Group(head, Text("No trouble that is known shows in this log."))
    return Group(head, findings(found.findings))
