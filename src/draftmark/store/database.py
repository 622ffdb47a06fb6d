"""The SQLite file beneath the store: opened, brought to the newest schema, written in transactions."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from draftmark.errors import BadInput
from draftmark.store.schema import MIGRATIONS, VERSION


class Database:
    """One SQLite file in WAL mode.

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
            self._connection = _open_to_read(path) if read_only else _open_to_write(path)
            try:
                if not read_only:
                    self._prepare()
                elif self._check() == 0:
                    raise BadInput("the store is empty", place=str(path), remedy="`draftmark sweep` fills one")
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """What is written inside is on disk when it ends, or not at all where it fails."""
        with self._errors():
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    def insert(self, table: str, **values: object) -> int:
        """A row more, in a transaction of its own; its number."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self.transaction() as connection:
            row = connection.execute(
                f"insert into {table} ({names}) values ({marks})", tuple(values.values())
            ).lastrowid
        assert row is not None, "an insert has a row"
        return row

    def update(self, table: str, row: int, **values: object) -> None:
        """New values in a row, in a transaction of its own."""
        settings = ", ".join(f"{name} = ?" for name in values)
        with self.transaction() as connection:
            connection.execute(f"update {table} set {settings} where id = ?", (*values.values(), row))

    def select(self, query: str, *parameters: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self._errors(), closing(self._connection.execute(query, parameters)) as cursor:
            return cursor.fetchall()

    def _check(self) -> int:
        """The file's schema version, where this Draftmark knows it and some Draftmark wrote it."""
        found = int(self._connection.execute("pragma user_version").fetchone()[0])
        if found > VERSION:
            raise BadInput(
                f"the database has schema version {found}; this Draftmark knows up to {VERSION}",
                place=str(self.path),
                remedy="update draftmark, or choose another file with --store",
            )
        tables = self._connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if found == 0 and tables:
            raise BadInput(
                "this database was not made by Draftmark",
                place=str(self.path),
                remedy="choose another file with --store",
            )
        return found

    def _prepare(self) -> None:
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = full")
        self._connection.execute("pragma foreign_keys = on")
        with self.transaction() as connection:
            found = self._check()
            for version in range(found, VERSION):
                for statement in MIGRATIONS[version].split(";\n"):
                    connection.execute(statement)
            connection.execute(f"pragma user_version = {VERSION}")

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


def _open_to_write(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.row_factory = sqlite3.Row
    return connection


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Read only; where not even SQLite's shared-memory file can be made, as a file that nobody writes.

    Nobody does on a read-only or full disk. A write-ahead log that holds more than the file is never passed over.
    """
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
        connection.row_factory = sqlite3.Row
    return connection
