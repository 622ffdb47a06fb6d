"""Predict memory, and solve for the flags that reach a target."""

from draftmark.planner.asked import check
from draftmark.planner.candidate import Candidate
from draftmark.planner.layouts import laid_out
from draftmark.planner.learn import Past
from draftmark.planner.outcome import CERTAIN, STARTING, Plan, Reason, Risk
from draftmark.planner.predict import plan
from draftmark.planner.solve import Solution, solve
from draftmark.planner.target import Reach, Target

__all__ = [
    "CERTAIN",
    "STARTING",
    "Candidate",
    "Past",
    "Plan",
    "Reach",
    "Reason",
    "Risk",
    "Solution",
    "Target",
    "check",
    "laid_out",
    "plan",
    "solve",
]
