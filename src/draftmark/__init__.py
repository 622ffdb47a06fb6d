"""Draftmark: how much context your GPUs can carry, what it costs, and why."""

from importlib.metadata import version

__version__ = version("draftmark")
