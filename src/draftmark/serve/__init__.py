"""Engines under supervision."""

from draftmark.serve.attach import attach, find, stop
from draftmark.serve.autopsy import findings
from draftmark.serve.events import Activity, Event, Note, Observed, PhaseEntered, Started
from draftmark.serve.hosts import OnFirstHost, Others, launcher_for, spread
from draftmark.serve.kept import Kept
from draftmark.serve.launcher import Launcher
from draftmark.serve.launcher import parse as parse_launcher
from draftmark.serve.place import Place, settle
from draftmark.serve.server import Prediction, Server
from draftmark.serve.signals import HungUp, Terminated, interruptible
from draftmark.serve.start import PATIENCE, StartFailed, StartRefused, serve

__all__ = [
    "PATIENCE",
    "Activity",
    "Event",
    "HungUp",
    "Kept",
    "Launcher",
    "Note",
    "Observed",
    "OnFirstHost",
    "Others",
    "PhaseEntered",
    "Place",
    "Prediction",
    "Server",
    "StartFailed",
    "StartRefused",
    "Started",
    "Terminated",
    "attach",
    "find",
    "findings",
    "interruptible",
    "launcher_for",
    "parse_launcher",
    "serve",
    "settle",
    "spread",
    "stop",
]
