"""Why an engine died, from its log."""

from draftmark.diagnose.diagnosis import CODES, Diagnosis, diagnose

__all__ = ["CODES", "Diagnosis", "diagnose"]
