"""Measurements over depths."""

from draftmark.sweep.options import Event, Kept, Options, Sending, Started, Sweep
from draftmark.sweep.run import sweep

__all__ = ["Event", "Kept", "Options", "Sending", "Started", "Sweep", "sweep"]
