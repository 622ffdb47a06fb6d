"""Find an engine again that an earlier Draftmark started."""

import time

import httpx

from draftmark.engines import known
from draftmark.engines.adapter import Adapter
from draftmark.errors import BadInput
from draftmark.serve import records
from draftmark.serve.events import Progress, ignore
from draftmark.serve.process import EngineProcess
from draftmark.serve.records import Record
from draftmark.serve.server import GRACE, Prediction, Server, end
from draftmark.serve.watch import Watch
from draftmark.trial import Ready
from draftmark.units import Seconds


def find(which: str | None) -> Record:
    """The running engine with this name, process id, port or URL; the only one where None.

    Raises:
        BadInput: no such engine runs, or several do and none is named.
    """
    running = records.running()
    found = records.find(which) if which is not None else running[0] if len(running) == 1 else None
    if found is not None:
        return found
    names = ", ".join(record.name for record in running)
    if not running:
        raise BadInput("no engine that Draftmark started is running")
    cause = f"no running engine is called {which!r}" if which is not None else "several engines are running"
    raise BadInput(cause, remedy=f"name one of {names}")


def attach(
    which: str | None,
    *,
    adapter: Adapter | None = None,
    prediction: Prediction | None = None,
    progress: Progress = ignore,
) -> Server:
    """Hold a running engine as if it had been started just now: its log is read from the start.

    The server may still be loading; `Server.ready` tells.

    Raises:
        BadInput: no such engine runs, or its log is gone.
    """
    record = find(which)
    adapter = adapter or known.adapter(record.configuration.engine)
    try:
        watch = Watch(record.log, adapter.reader(record.log), progress)
    except OSError as error:
        raise BadInput(f"its log cannot be read ({error.strerror})", place=record.log) from error
    process = EngineProcess(record.pid, record.created)
    expected = prediction or Prediction()
    server = Server(record=record, process=process, watch=watch, adapter=adapter, prediction=expected)
    server.check()
    with httpx.Client(timeout=5.0) as client:
        if server.outcome is None and server.ready(client):
            server.outcome = Ready(after=Seconds(time.time() - record.started))
    return server


def stop(which: str | None, grace: float = GRACE) -> Record:
    """End a running engine, wherever it runs.

    Raises:
        BadInput: no such engine runs.
        EngineFailed: its container or its host does not let it be stopped.
    """
    record = find(which)
    end(record, EngineProcess(record.pid, record.created), grace)
    return record
