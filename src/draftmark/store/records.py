"""What the store gives back: runs, trials and points with their keys."""

from typing import Literal

import msgspec

from draftmark.configuration import Configuration
from draftmark.finding import Finding
from draftmark.hardware import Bandwidth
from draftmark.ledger import Ledger, Pool
from draftmark.model import Model
from draftmark.observation import Observation
from draftmark.sample import Point
from draftmark.trial import Environment, Outcome

Status = Literal["done", "failed", "interrupted"]


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """How to find a started engine again: where it answers, and what to signal."""

    url: str
    pid: int | None = None
    created: float | None = None
    """Creation time of the process, so that a reused pid is not mistaken for it."""
    container: str | None = None
    host: str | None = None
    launcher: tuple[str, ...] = ()


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run's own row. `status` is None while it goes on, and for ever where it was killed."""

    id: int
    command: str
    arguments: tuple[str, ...]
    environment: Environment
    started: float
    ended: float | None
    status: Status | None
    model: Model | None
    bandwidth: Bandwidth | None


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One start of an engine. `outcome` is None while it is not known."""

    id: int
    run: int
    configuration: Configuration
    environment: Environment
    log: str | None
    handle: Handle | None
    started: float
    ended: float | None
    outcome: Outcome | None
    predicted: tuple[Ledger, ...]
    observed: tuple[Ledger, ...]
    predicted_pool: Pool | None
    pool: Pool | None
    observations: tuple[Observation, ...]


class PointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A point and its samples. `finished` tells a closed point from one that was open when the run was killed."""

    id: int
    trial: int | None
    finished: bool
    point: Point


class RunExport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run, in one piece."""

    schema: int
    run: RunRecord
    trials: tuple[TrialRecord, ...]
    points: tuple[PointRecord, ...]
    findings: tuple[Finding, ...]
