"""The store: run -> trial -> point -> sample in one SQLite file, durable before the next request is sent."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

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
from draftmark.store.records import Handle, PointRecord, RunExport, RunRecord, Status, TrialRecord
from draftmark.store.rows import observation_of, point_of, run_of, to_json, trial_of
from draftmark.store.schema import MIGRATIONS, VERSION
from draftmark.trial import Environment, Outcome


def default_path() -> Path:
    """`$DRAFTMARK_STORE`, or draftmark.db in the user's data folder."""
    chosen = os.environ.get("DRAFTMARK_STORE")
    return Path(chosen) if chosen else platformdirs.user_data_path("draftmark") / "draftmark.db"


class Store:
    """One SQLite file in WAL mode; every method is one transaction, on disk when it returns.

    Read only, it makes and changes nothing, and works from a read-only or full disk.

    Raises:
        BadInput: the file is no Draftmark database, is newer than this Draftmark, cannot be written, or is not there
            and should only be read.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self._errors():
            if read_only and not path.exists():
                raise BadInput("there is no store yet", place=str(path), remedy="`draftmark sweep` makes one")
            self._database = _open_to_read(path) if read_only else _open_to_write(path)
            try:
                if not read_only:
                    self._prepare()
                elif self._check() == 0:
                    raise BadInput("the store is empty", place=str(path), remedy="`draftmark sweep` fills one")
            except BaseException:
                self._database.close()
                raise

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
        return self._insert(
            "run", command=command, arguments=to_json(arguments), environment=to_json(environment), started=time.time()
        )

    def describe_run(self, run: int, *, model: Model | None = None, bandwidth: Bandwidth | None = None) -> None:
        """Keep what the run's numbers are explained with; None leaves what is there."""
        if model is not None:
            self._update("run", run, model=to_json(model))
        if bandwidth is not None:
            self._update("run", run, bandwidth=to_json(bandwidth))

    def end_run(self, run: int, status: Status) -> None:
        """Close a run."""
        self._update("run", run, ended=time.time(), status=status)

    def begin_trial(
        self, run: int, configuration: Configuration, environment: Environment, log: str | None = None
    ) -> int:
        """Open a trial, before the engine is started."""
        return self._insert(
            "trial",
            run=run,
            configuration=to_json(configuration),
            environment=to_json(environment),
            log=log,
            started=time.time(),
        )

    def set_handle(self, trial: int, handle: Handle, log: str | None = None) -> None:
        """Keep how to find the engine again, and its log, as soon as it is started."""
        self._update("trial", trial, handle=to_json(handle), **({"log": log} if log is not None else {}))

    def set_environment(self, trial: int, environment: Environment) -> None:
        """Keep what the engine itself said of its version and device; a run that did not know the version learns it."""
        self._update("trial", trial, environment=to_json(environment))
        run = run_of(self._select("select run.* from run join trial on run.id = run where trial.id = ?", trial)[0])
        if run.environment.engine_version is None and environment.engine_version is not None:
            learnt = msgspec.structs.replace(run.environment, engine_version=environment.engine_version)
            self._update("run", run.id, environment=to_json(learnt))

    def set_prediction(self, trial: int, ledgers: Sequence[Ledger], pool: Pool | None) -> None:
        """Keep what was predicted, before the measurement."""
        self._update("trial", trial, predicted=to_json(ledgers), predicted_pool=to_json(pool) if pool else None)

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
        self._update("trial", trial, observed=to_json(ledgers), **sizes)

    def set_outcome(self, trial: int, outcome: Outcome) -> None:
        """Keep how the start ended. A trial that became ready is closed by `end_trial`."""
        self._update("trial", trial, outcome=to_json(outcome))

    def end_trial(self, trial: int) -> None:
        """Keep when the engine was gone."""
        self._update("trial", trial, ended=time.time())

    def add_observations(self, trial: int, observations: Sequence[Observation]) -> None:
        """Keep numbers that the engine stated."""
        rows = [
            (trial, seen.quantity, to_json(seen.value), seen.unit, seen.rank, seen.phase, to_json(seen.source))
            for seen in observations
        ]
        with self._transaction() as database:
            database.executemany("insert into observation values (?, ?, ?, ?, ?, ?, ?)", rows)

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
        return self._insert("point", run=run, trial=trial, rate=rate, content=content, started=time.time(), **keys)

    def add_samples(self, point: int, samples: Sequence[Sample]) -> None:
        """Keep finished requests."""
        with self._transaction() as database:
            database.executemany(
                "insert into sample (point, body) values (?, ?)", [(point, to_json(sample)) for sample in samples]
            )

    def end_point(self, point: int, *, invalid: str | None = None, flags: Sequence[str] = ()) -> None:
        """Close a point as valid, or with the reason why it is not."""
        self._update("point", point, ended=time.time(), invalid=invalid, flags=to_json(flags))

    def add_findings(self, run: int, findings: Sequence[Finding], trial: int | None = None) -> None:
        """Keep findings."""
        with self._transaction() as database:
            database.executemany(
                "insert into finding (run, trial, code, body) values (?, ?, ?, ?)",
                [(run, trial, finding.code, to_json(finding)) for finding in findings],
            )

    # Reading

    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, oldest first."""
        return tuple(run_of(row) for row in self._select("select * from run order by id"))

    def run(self, run: int | None = None) -> RunRecord:
        """One run; the newest where none is named.

        Raises:
            BadInput: there is no such run.
        """
        which = "where id = ?" if run is not None else "order by id desc limit 1"
        rows = self._select(f"select * from run {which}", *([run] if run is not None else []))
        if not rows:
            named = "holds no run yet" if run is None else f"holds no run {run}"
            raise BadInput(named, place=str(self.path), remedy="`draftmark runs` lists what is there")
        return run_of(rows[0])

    def trials(self, run: int | None = None) -> tuple[TrialRecord, ...]:
        """The trials of one run, or of all."""
        where = "where run = ?" if run is not None else ""
        return self._trials(
            self._select(f"select * from trial {where} order by id", *([run] if run is not None else []))
        )

    def trial_at(self, url: str, moment: float) -> TrialRecord | None:
        """The engine that answered at `url` at `moment` (Unix time), if it was started from this store."""
        rows = self._select(
            "select * from trial where json_extract(handle, '$.url') = ?"
            " and started <= ? and (ended is null or ended >= ?) order by id desc limit 1",
            url,
            moment,
            moment,
        )
        return self._trials(rows)[0] if rows else None

    def points(self, run: int) -> tuple[PointRecord, ...]:
        """The points of one run, open ones included, in the order in which they were begun."""
        rows = self._select("select * from point where run = ? order by id", run)
        return tuple(point_of(row, self._bodies(row["id"])) for row in rows)

    def findings(self, run: int) -> tuple[Finding, ...]:
        """The findings of one run."""
        rows = self._select("select body from finding where run = ? order by id", run)
        return tuple(msgspec.json.decode(row["body"], type=Finding) for row in rows)

    def export(self, run: int) -> RunExport:
        """Everything about one run, with the trials that it measured, whichever run started them."""
        measured = self._select(
            "select * from trial where run = ? or id in (select trial from point where run = ?) order by id", run, run
        )
        return RunExport(
            schema=VERSION,
            run=self.run(run),
            trials=self._trials(measured),
            points=self.points(run),
            findings=self.findings(run),
        )

    # Inside

    def _check(self) -> int:
        """The file's schema version, where this Draftmark knows it and some Draftmark wrote it."""
        found = int(self._database.execute("pragma user_version").fetchone()[0])
        if found > VERSION:
            raise BadInput(
                f"the database has schema version {found}; this Draftmark knows up to {VERSION}",
                place=str(self.path),
                remedy="update draftmark, or choose another file with --store",
            )
        tables = self._database.execute("select count(*) from sqlite_master").fetchone()[0]
        if found == 0 and tables:
            raise BadInput(
                "this database was not made by Draftmark",
                place=str(self.path),
                remedy="choose another file with --store",
            )
        return found

    def _prepare(self) -> None:
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        self._database.execute("pragma foreign_keys = on")
        with self._transaction() as database:
            found = self._check()
            for version in range(found, VERSION):
                for statement in MIGRATIONS[version].split(";\n"):
                    database.execute(statement)
            database.execute(f"pragma user_version = {VERSION}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise BadInput(
                f"the store cannot be used: {error}",
                place=str(self.path),
                remedy="free the disk or choose another file with --store",
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._database.execute("begin immediate")
            try:
                yield self._database
                self._database.execute("commit")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("rollback")
                raise

    def _insert(self, table: str, **values: object) -> int:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._transaction() as database:
            row = database.execute(f"insert into {table} ({names}) values ({marks})", tuple(values.values())).lastrowid
        assert row is not None, "an insert has a row"
        return row

    def _update(self, table: str, row: int, **values: object) -> None:
        settings = ", ".join(f"{name} = ?" for name in values)
        with self._transaction() as database:
            database.execute(f"update {table} set {settings} where id = ?", (*values.values(), row))

    def _select(self, query: str, *parameters: object) -> list[sqlite3.Row]:
        with self._errors(), closing(self._database.execute(query, parameters)) as cursor:
            return cursor.fetchall()

    def _trials(self, rows: Sequence[sqlite3.Row]) -> tuple[TrialRecord, ...]:
        return tuple(trial_of(row, self._observations(row["id"])) for row in rows)

    def _observations(self, trial: int) -> tuple[Observation, ...]:
        rows = self._select("select * from observation where trial = ? order by rowid", trial)
        return tuple(observation_of(row) for row in rows)

    def _bodies(self, point: int) -> list[str]:
        return [row["body"] for row in self._select("select body from sample where point = ? order by id", point)]


def _open_to_write(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.row_factory = sqlite3.Row
    return database


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Read only; where not even SQLite's shared-memory file can be made, as a file that nobody writes.

    Nobody does on a read-only or full disk. A write-ahead log that holds more than the file is never passed over.
    """
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
    database.row_factory = sqlite3.Row
    try:
        database.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError:
        database.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        database = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
        database.row_factory = sqlite3.Row
    return database
