"""Measurements over depths."""

from draftmark.sweep.options import Asking, Event, Kept, Options, Sending, Started, Sweep
from draftmark.sweep.run import sweep

__all__ = ["Asking", "Event", "Kept", "Options", "Sending", "Started", "Sweep", "sweep"]
