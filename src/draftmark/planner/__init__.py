"""Predict memory, and solve for the flags that reach a target."""

from draftmark.planner.asked import check
from draftmark.planner.learn import Past
from draftmark.planner.outcome import Plan, Reason, Risk
from draftmark.planner.predict import plan
from draftmark.planner.solve import Candidate, Solution, solve
from draftmark.planner.target import Target

__all__ = ["Candidate", "Past", "Plan", "Reason", "Risk", "Solution", "Target", "check", "plan", "solve"]
