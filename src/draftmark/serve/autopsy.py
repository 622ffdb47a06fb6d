"""A death is diagnosed at once, from the log that the engine left."""

from pathlib import Path

from draftmark.configuration import Configuration
from draftmark.diagnose import diagnose
from draftmark.finding import Finding


def findings(log: str | None, configuration: Configuration) -> tuple[Finding, ...]:
    """Why the engine whose log this is died; empty where the log is gone or shows no trouble."""
    if log is None or not Path(log).is_file():
        return ()
    with Path(log).open("rb") as stream:
        return diagnose(stream, log, configuration).findings
