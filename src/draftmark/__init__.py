"""Draftmark: how much context your GPUs can carry, what it costs, and why."""

__version__ = "0.1.0"
