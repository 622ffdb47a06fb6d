"""Predict memory, and solve for the flags that reach a target."""

from draftmark.planner.outcome import Plan, Reason, Risk
from draftmark.planner.predict import plan

__all__ = ["Plan", "Reason", "Risk", "plan"]
