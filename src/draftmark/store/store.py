"""The store: run -> trial -> point -> sample in one SQLite file, durable before the next request is sent."""

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import platformdirs

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.finding import Finding
from draftmark.hardware import Bandwidth
from draftmark.ledger import Ledger, Pool
from draftmark.model import Model
from draftmark.observation import Observation
from draftmark.sample import Sample
from draftmark.store.database import Database
from draftmark.store.records import Handle, PointRecord, RunExport, RunRecord, Status, TrialRecord
from draftmark.store.rows import observation_of, point_of, run_of, to_json, trial_of
from draftmark.store.schema import VERSION
from draftmark.trial import Environment, Outcome


def default_path() -> Path:
    """`$DRAFTMARK_STORE`, or draftmark.db in the user's data folder."""
    chosen = os.environ.get("DRAFTMARK_STORE")
    return Path(chosen) if chosen else platformdirs.user_data_path("draftmark") / "draftmark.db"


class Store:
    """What happened, in one file; every method is one transaction, on disk when it returns.

    Raises:
        BadInput: the file cannot be used, as `Database` says.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._database = Database(path, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    # Writing

    def begin_run(self, command: str, arguments: Sequence[str], environment: Environment) -> int:
        """Open a run; it has no status until `end_run`, and keeps none if the process is killed."""
        return self._database.insert(
            "run", command=command, arguments=to_json(arguments), environment=to_json(environment), started=time.time()
        )

    def describe_run(self, run: int, *, model: Model | None = None, bandwidth: Bandwidth | None = None) -> None:
        """Keep what the run's numbers are explained with; None leaves what is there."""
        if model is not None:
            self._database.update("run", run, model=to_json(model))
        if bandwidth is not None:
            self._database.update("run", run, bandwidth=to_json(bandwidth))

    def end_run(self, run: int, status: Status) -> None:
        """Close a run."""
        self._database.update("run", run, ended=time.time(), status=status)

    def begin_trial(
        self, run: int, configuration: Configuration, environment: Environment, log: str | None = None
    ) -> int:
        """Open a trial, before the engine is started."""
        return self._database.insert(
            "trial",
            run=run,
            configuration=to_json(configuration),
            environment=to_json(environment),
            log=log,
            started=time.time(),
        )

    def set_handle(self, trial: int, handle: Handle, log: str | None = None) -> None:
        """Keep how to find the engine again, and its log, as soon as it is started."""
        self._database.update("trial", trial, handle=to_json(handle), **({"log": log} if log is not None else {}))

    def set_environment(self, trial: int, environment: Environment) -> None:
        """Keep what the engine itself said of its version and device; a run that did not know the version learns it."""
        self._database.update("trial", trial, environment=to_json(environment))
        run = run_of(
            self._database.select("select run.* from run join trial on run.id = run where trial.id = ?", trial)[0]
        )
        if run.environment.engine_version is None and environment.engine_version is not None:
            learnt = msgspec.structs.replace(run.environment, engine_version=environment.engine_version)
            self._database.update("run", run.id, environment=to_json(learnt))

    def set_prediction(self, trial: int, ledgers: Sequence[Ledger], pool: Pool | None) -> None:
        """Keep what was predicted, before the measurement."""
        self._database.update(
            "trial", trial, predicted=to_json(ledgers), predicted_pool=to_json(pool) if pool else None
        )

    def set_observed(self, trial: int, ledgers: Sequence[Ledger], pool: Pool | None) -> None:
        """Keep the observed ledgers and pool."""
        sizes: dict[str, int | None] = {}
        if pool is not None:
            sizes = {
                "pool_tokens": pool.tokens,
                "pool_bytes": pool.bytes,
                "pool_page": pool.page,
                "pool_blocks": pool.blocks,
                "pool_groups": pool.groups,
            }
        self._database.update("trial", trial, observed=to_json(ledgers), **sizes)

    def set_outcome(self, trial: int, outcome: Outcome) -> None:
        """Keep how the start ended. A trial that became ready is closed by `end_trial`."""
        self._database.update("trial", trial, outcome=to_json(outcome))

    def end_trial(self, trial: int) -> None:
        """Keep when the engine was gone."""
        self._database.update("trial", trial, ended=time.time())

    def add_observations(self, trial: int, observations: Sequence[Observation]) -> None:
        """Keep numbers that the engine stated."""
        rows = [
            (trial, seen.quantity, to_json(seen.value), seen.unit, seen.rank, seen.phase, to_json(seen.source))
            for seen in observations
        ]
        with self._database.transaction() as connection:
            connection.executemany("insert into observation values (?, ?, ?, ?, ?, ?, ?)", rows)

    def begin_point(
        self,
        run: int,
        *,
        asked: int,
        output: int,
        concurrency: int,
        mode: str,
        rate: float | None = None,
        content: str | None = None,
        trial: int | None = None,
    ) -> int:
        """Open a point, before its first request. It is not used until `end_point`."""
        keys = {"asked": asked, "output": output, "concurrency": concurrency, "mode": mode}
        return self._database.insert(
            "point", run=run, trial=trial, rate=rate, content=content, started=time.time(), **keys
        )

    def add_samples(self, point: int, samples: Sequence[Sample]) -> None:
        """Keep finished requests."""
        with self._database.transaction() as connection:
            connection.executemany(
                "insert into sample (point, body) values (?, ?)", [(point, to_json(sample)) for sample in samples]
            )

    def end_point(self, point: int, *, invalid: str | None = None, flags: Sequence[str] = ()) -> None:
        """Close a point as valid, or with the reason why it is not."""
        self._database.update("point", point, ended=time.time(), invalid=invalid, flags=to_json(flags))

    def add_findings(self, run: int, findings: Sequence[Finding], trial: int | None = None) -> None:
        """Keep findings."""
        with self._database.transaction() as connection:
            connection.executemany(
                "insert into finding (run, trial, code, body) values (?, ?, ?, ?)",
                [(run, trial, finding.code, to_json(finding)) for finding in findings],
            )

    # Reading

    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, oldest first."""
        return tuple(run_of(row) for row in self._database.select("select * from run order by id"))

    def run(self, run: int | None = None) -> RunRecord:
        """One run; the newest where none is named.

        Raises:
            BadInput: there is no such run.
        """
        which = "where id = ?" if run is not None else "order by id desc limit 1"
        rows = self._database.select(f"select * from run {which}", *([run] if run is not None else []))
        if not rows:
            named = "holds no run yet" if run is None else f"holds no run {run}"
            raise BadInput(named, place=str(self.path), remedy="`draftmark runs` lists what is there")
        return run_of(rows[0])

    def trials(self, run: int | None = None) -> tuple[TrialRecord, ...]:
        """The trials of one run, or of all."""
        where = "where run = ?" if run is not None else ""
        return self._trials(
            self._database.select(f"select * from trial {where} order by id", *([run] if run is not None else []))
        )

    def trial_at(self, url: str, moment: float) -> TrialRecord | None:
        """The engine that answered at `url` at `moment` (Unix time), if it was started from this store."""
        rows = self._database.select(
            "select * from trial where json_extract(handle, '$.url') = ?"
            " and started <= ? and (ended is null or ended >= ?) order by id desc limit 1",
            url,
            moment,
            moment,
        )
        return self._trials(rows)[0] if rows else None

    def points(self, run: int) -> tuple[PointRecord, ...]:
        """The points of one run, open ones included, in the order in which they were begun."""
        rows = self._database.select("select * from point where run = ? order by id", run)
        return tuple(point_of(row, self._bodies(row["id"])) for row in rows)

    def findings(self, run: int) -> tuple[Finding, ...]:
        """The findings of one run."""
        rows = self._database.select("select body from finding where run = ? order by id", run)
        return tuple(msgspec.json.decode(row["body"], type=Finding) for row in rows)

    def export(self, run: int) -> RunExport:
        """Everything about one run, with the trials that it measured, whichever run started them."""
        measured = self._database.select(
            "select * from trial where run = ? or id in (select trial from point where run = ?) order by id", run, run
        )
        return RunExport(
            schema=VERSION,
            run=self.run(run),
            trials=self._trials(measured),
            points=self.points(run),
            findings=self.findings(run),
        )

    def _trials(self, rows: Sequence[sqlite3.Row]) -> tuple[TrialRecord, ...]:
        return tuple(trial_of(row, self._observations(row["id"])) for row in rows)

    def _observations(self, trial: int) -> tuple[Observation, ...]:
        rows = self._database.select("select * from observation where trial = ? order by rowid", trial)
        return tuple(observation_of(row) for row in rows)

    def _bodies(self, point: int) -> list[str]:
        return [
            row["body"] for row in self._database.select("select body from sample where point = ? order by id", point)
        ]
