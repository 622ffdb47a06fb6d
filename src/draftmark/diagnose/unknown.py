"""What is said where no rule knows the cause."""

from draftmark.diagnose.case import Case, is_consequence, once
from draftmark.finding import Finding


def unknown(case: Case) -> Finding:
    """Nothing is known of it: the lines that a person should read."""
    start = case.start
    errors = sorted(start.last_errors, key=lambda seen: is_consequence(str(seen.value)))
    lines = [*errors[:4], *list(start.last)[-4:]]
    return Finding(
        code="unknown",
        severity="note",
        confidence="possible",
        claim=f"no known cause; the engine was last in phase {start.phase}. These lines say most",
        evidence=once(lines),
    )


def no_engine(case: Case) -> Finding:
    """The file holds nothing that an engine would have written."""
    start = case.start
    where = "nothing in it is of an engine that is known; name the file of the engine's standard output and error"
    if case.configuration is not None:  # the file is the right one
        where = "nothing in it is of the engine: what was to start it ended, or waits, before the engine began"
    return Finding(
        code="no-engine",
        severity="note",
        confidence="possible",
        claim=where if start.tail else "it is empty: whatever ran wrote nothing, or wrote elsewhere",
        evidence=tuple(start.last)[-2:],
    )
