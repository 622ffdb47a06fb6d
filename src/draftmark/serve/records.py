"""Engines that Draftmark started, written down so that they are found again when Draftmark itself is gone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import platformdirs

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.serve.launcher import Launcher
from draftmark.serve.process import is_running


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One running engine: how to reach it, and how to stop it."""

    name: str
    pid: int
    created: float
    url: str
    log: str
    configuration: Configuration
    started: float
    """Unix time."""
    launcher: Launcher = Launcher()
    id_file: str | None = None
    """Where a container's id is written."""
    remote_process: int | None = None

    @property
    def running(self) -> bool:
        """Whether its local process lives (for a container or ssh: the program that started it)."""
        return is_running(self.pid, self.created)


def folder() -> Path:
    """Where the records lie."""
    return platformdirs.user_state_path("draftmark") / "servers"


def made_folder() -> Path:
    """The folder, there to be written to.

    Raises:
        BadInput: it cannot be made.
    """
    with _writing():
        folder().mkdir(parents=True, exist_ok=True)
    return folder()


def save(record: Record) -> None:
    """Write or replace a record, whole or not at all.

    Raises:
        BadInput: it cannot be written, as on a full disk.
    """
    path = made_folder() / _path(record.name).name
    fresh = path.with_suffix(".new")
    with _writing():
        fresh.write_bytes(msgspec.json.encode(record))
        fresh.replace(path)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"the record of a running engine cannot be written ({error.strerror})",
            place=str(folder()),
            remedy="free the disk, or let XDG_STATE_HOME name a folder that can be written",
        ) from error


def forget(record: Record) -> None:
    """Remove a record whose engine has ended."""
    _path(record.name).unlink(missing_ok=True)
    if record.id_file is not None:
        Path(record.id_file).unlink(missing_ok=True)


def running() -> tuple[Record, ...]:
    """Every engine that still lives, newest last; records of dead ones are removed on the way."""
    found = []
    for record in _all():
        if record.running or _may_live_elsewhere(record):
            found.append(record)
        else:
            forget(record)
    return tuple(sorted(found, key=lambda record: record.started))


def find(which: str) -> Record | None:
    """The running engine with this name, process id, port or URL; the newest where several match."""
    matching = [
        record
        for record in running()
        if which in {record.name, str(record.pid), record.url, record.url.rsplit(":", 1)[-1]}
    ]
    return matching[-1] if matching else None


def container(record: Record) -> str | None:
    """The id of the container that an engine runs in, once it is written down."""
    if record.id_file is None:
        return None
    path = Path(record.id_file)
    return path.read_text().strip() or None if path.exists() else None


def new_name(engine: str, port: int) -> str:
    """A name that people can type: engine and port, and the time where that is taken."""
    name = f"{engine}-{port}"
    return f"{name}-{round(time.time())}" if _path(name).exists() else name


def _may_live_elsewhere(record: Record) -> bool:
    """A container or remote engine can outlive the program that started it."""
    if record.launcher.kind == "container":
        return record.id_file is not None and Path(record.id_file).exists()
    return record.launcher.kind == "ssh" and record.remote_process is not None


def _path(name: str) -> Path:
    return folder() / f"{name}.json"


def _all() -> Iterator[Record]:
    for path in folder().glob("*.json"):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Record)
        except (msgspec.MsgspecError, OSError):
            continue
