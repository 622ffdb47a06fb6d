"""What happened, kept in one SQLite file and never lost."""

from draftmark.store.records import Handle, PointRecord, RunExport, RunRecord, Status, TrialRecord
from draftmark.store.store import Store, default_path

__all__ = ["Handle", "PointRecord", "RunExport", "RunRecord", "Status", "Store", "TrialRecord", "default_path"]
