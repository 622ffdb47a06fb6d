"""Rows of the database, to and from what they hold."""

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Bandwidth
from draftmark.ledger import Ledger, Pool
from draftmark.model import Model
from draftmark.observation import Observation, Source
from draftmark.sample import Point, Sample
from draftmark.store.records import Handle, PointRecord, RunRecord, TrialRecord
from draftmark.trial import Environment, Outcome
from draftmark.units import Bytes, Tokens

T = TypeVar("T")


def to_json(value: object) -> str:
    """A value as it is kept in a text column."""
    return msgspec.json.encode(value).decode()


def _decode(text: str | None, kind: type[T]) -> T | None:
    return None if text is None else msgspec.json.decode(text, type=kind)


def run_of(row: sqlite3.Row) -> RunRecord:
    """A row of `run`."""
    return RunRecord(
        id=row["id"],
        command=row["command"],
        arguments=msgspec.json.decode(row["arguments"], type=tuple[str, ...]),
        environment=msgspec.json.decode(row["environment"], type=Environment),
        started=row["started"],
        ended=row["ended"],
        status=row["status"],
        model=_decode(row["model"], Model),
        bandwidth=_decode(row["bandwidth"], Bandwidth),
    )


def trial_of(row: sqlite3.Row, observations: tuple[Observation, ...]) -> TrialRecord:
    """A row of `trial`, with what was observed."""
    outcome: Any = msgspec.json.decode(row["outcome"], type=Outcome) if row["outcome"] else None
    return TrialRecord(
        id=row["id"],
        run=row["run"],
        configuration=msgspec.json.decode(row["configuration"], type=Configuration),
        environment=msgspec.json.decode(row["environment"], type=Environment),
        log=row["log"],
        handle=_decode(row["handle"], Handle),
        started=row["started"],
        ended=row["ended"],
        outcome=outcome,
        predicted=msgspec.json.decode(row["predicted"], type=tuple[Ledger, ...]),
        observed=msgspec.json.decode(row["observed"], type=tuple[Ledger, ...]),
        predicted_pool=_decode(row["predicted_pool"], Pool),
        pool=_pool(row),
        observations=observations,
    )


def _pool(row: sqlite3.Row) -> Pool | None:
    if row["pool_tokens"] is None:
        return None
    size = row["pool_bytes"]
    return Pool(
        tokens=Tokens(row["pool_tokens"]),
        bytes=None if size is None else Bytes(size),
        page=row["pool_page"],
        blocks=row["pool_blocks"],
        groups=row["pool_groups"],
    )


def observation_of(row: sqlite3.Row) -> Observation:
    """A row of `observation`."""
    return Observation(
        quantity=row["quantity"],
        value=msgspec.json.decode(row["value"]),
        unit=row["unit"],
        rank=row["rank"],
        phase=row["phase"],
        source=msgspec.json.decode(row["source"], type=Source),
    )


def point_of(row: sqlite3.Row, bodies: Sequence[str]) -> PointRecord:
    """A row of `point`, with the bodies of its samples."""
    point = Point(
        asked=row["asked"],
        output=row["output"],
        concurrency=row["concurrency"],
        mode=row["mode"],
        samples=tuple(msgspec.json.decode(body, type=Sample) for body in bodies),
        invalid=row["invalid"],
        flags=msgspec.json.decode(row["flags"], type=tuple[str, ...]),
        rate=row["rate"],
        content=row["content"],
        open=row["ended"] is None,
    )
    return PointRecord(id=row["id"], trial=row["trial"], finished=row["ended"] is not None, point=point)
