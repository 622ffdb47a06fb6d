"""Start an engine and wait until it is ready, or until it is clear why it is not."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from draftmark.configuration import Configuration
from draftmark.engines import known
from draftmark.engines.adapter import Adapter, Command
from draftmark.errors import BadInput, EngineFailed
from draftmark.hardware import Device
from draftmark.machine.detect import detect_gpus
from draftmark.observation import Phase
from draftmark.serve import preflight, records
from draftmark.serve.events import Note, Progress, Started, ignore
from draftmark.serve.log import new_log
from draftmark.serve.place import Place, Settled, settle
from draftmark.serve.process import start
from draftmark.serve.records import Record
from draftmark.serve.server import Prediction, Server
from draftmark.serve.signals import HungUp
from draftmark.serve.stack import stack_of
from draftmark.serve.watch import Watch
from draftmark.trial import Crashed, Outcome, OutOfMemory, Ready, TimedOut, Trial
from draftmark.units import Seconds

PATIENCE: Final[Mapping[Phase, float]] = {
    "init": 900,
    "weights": 7200,
    "profile": 1800,
    "pool": 900,
    "graphs": 3600,
    "warm-up": 3600,
}
"""Seconds that an engine may stay in one phase. Long, because compiling kernels and repacking weights are silent."""

_ENVIRONMENT: Final = (("PYTHONFAULTHANDLER", "1"), ("PYTHONUNBUFFERED", "1"))
"""A crash leaves its stack in the log, and lines reach the log when they are printed."""
_PREFIX: Final = re.compile(r"^.*?\bdraftmark\.embedded: (?:error: )?")
"""What the embedded engine's log and its command line put before a message."""
_SILENT: Final = "see that --launcher and --python run what stands behind them"
_POLL: Final = 0.1
_LOG_BEHIND: Final = 2.0
"""Seconds by which the log of a server that answers may be behind."""
_ASK: Final = 0.5
"""Seconds between two questions whether it is ready."""


class StartFailed(EngineFailed):
    """The engine did not become ready; `trial` says how it ended and what it stated until then.

    Where its log's findings are `shown` beside it, it does not point to them.
    """

    def __init__(self, trial: Trial, *, shown: bool = False) -> None:
        self.trial = trial
        log = trial.log or ""
        silent = isinstance(trial.outcome, Crashed) and not trial.outcome.message
        remedy = "" if shown else f"`draftmark diagnose {log}` says what to change"
        super().__init__(_cause(trial.outcome), place=log, remedy=_SILENT if silent else remedy)


class StartRefused(BadInput):
    """The engine itself said by its exit code that what it was given cannot be used; `trial` as for `StartFailed`."""

    def __init__(self, trial: Trial, said: str) -> None:
        self.trial = trial
        super().__init__(_PREFIX.sub("", said), place="the engine", remedy=f"its log is {trial.log}")


def serve(
    configuration: Configuration,
    *,
    place: Place | Settled | None = None,
    adapter: Adapter | None = None,
    patience: Mapping[Phase, float] = PATIENCE,
    prediction: Prediction | None = None,
    progress: Progress = ignore,
    bound: bool = False,
) -> Server:
    """Start an engine under supervision and wait until it answers and its pool is known.

    The engine runs in a session of its own and writes its log itself, so it survives Draftmark. A Ctrl-C during this
    call ends the engine, a second one at once; afterwards the returned server is a context manager that ends it.

    Args:
        configuration: what to run.
        place: Python, launcher, address and folder for the log; settled here where it is not.
        adapter: the engine's adapter, where it is not the known one of that name.
        patience: seconds that it may stay in each phase.
        prediction: what is expected; kept with the trial.
        progress: told of every step.
        bound: the engine is killed when this process ends, even by a kill (on Linux); else it lives on.

    Raises:
        BadInput: engine not installed, no such model, port in use, no place for the log.
        StartRefused: the engine says that it cannot use what it was given.
        StartFailed: it did not become ready; its trial says why.
    """
    adapter = adapter or known.adapter(configuration.engine)
    settled = place if isinstance(place, Settled) else settle(configuration, adapter.requirement, place or Place())
    for text in (preflight.version_note(adapter.name, settled.version, adapter.tested), *preflight.taken_notes()):
        if text is not None:
            progress(Note(text=text))
    server = _start(configuration, adapter, settled, prediction or Prediction(), progress, bound=bound)
    try:
        outcome = _until_ready(server, patience)
    except HungUp:
        server.detach()
        raise
    except BaseException:
        server.stop()
        raise
    if not isinstance(outcome, Ready):
        server.stop()
        refusal = adapter.capabilities.bad_input_exit
        if isinstance(outcome, Crashed) and refusal is not None and outcome.exit_code == refusal:
            raise StartRefused(server.trial(outcome), outcome.message)
        raise StartFailed(server.trial(outcome))
    server.outcome = outcome
    return server


def _start(
    configuration: Configuration,
    adapter: Adapter,
    settled: Settled,
    prediction: Prediction,
    progress: Progress,
    *,
    bound: bool,
) -> Server:
    log = new_log(settled.logs, configuration.engine, settled.port)
    name = records.new_name(configuration.engine, settled.port)
    id_file = records.made_folder() / f"{name}.cid"
    bare = adapter.command(configuration, python=settled.python, host=settled.host, port=settled.port)
    bare = Command(argv=bare.argv, environment=(*_ENVIRONMENT, *bare.environment))
    command = settled.launcher.wrap(bare, settled.port, id_file)
    process = start(command.argv, command.environment, log, bound=bound)
    record = Record(
        name=name,
        pid=process.pid,
        created=process.created,
        url=settled.url,
        log=str(log),
        configuration=configuration,
        started=time.time(),
        launcher=settled.launcher,
        id_file=str(id_file) if settled.launcher.kind == "container" else None,
    )
    try:
        records.save(record)
        progress(
            Started(
                argv=command.argv,
                pid=process.pid,
                created=process.created,
                launcher=settled.launcher.words,
                log=str(log),
                url=record.url,
            )
        )
        weights = prediction.ledgers[0].amount("weights") if prediction.ledgers else None
        watch = Watch(record.log, adapter.reader(str(log)), progress, weights)
    except BaseException:
        process.kill()
        raise
    return Server(
        record=record,
        process=process,
        watch=watch,
        adapter=adapter,
        prediction=prediction,
        version=settled.version,
        gpu=_gpu() if settled.launcher.kind != "ssh" and configuration.device == "cuda" else None,
    )


def _gpu() -> Device | None:
    """The kind of GPU here; None where there is none, or several kinds that one ledger cannot describe."""
    try:
        machine = detect_gpus()
    except BadInput:
        return None
    return machine.device if machine is not None else None


def _until_ready(server: Server, patience: Mapping[Phase, float]) -> Outcome:
    asked = time.monotonic()
    with httpx.Client(timeout=5.0) as client:
        while True:
            died = server.check()
            if died is not None:
                return died
            if server.in_phase > patience.get(server.phase, PATIENCE["init"]):
                stack = stack_of(server.process, Path(server.log_path))
                return TimedOut(phase=server.phase, after=server.in_phase, stack=stack)
            if time.monotonic() - asked >= _ASK:
                asked = time.monotonic()
                if server.ready(client):
                    _read_log_on(server)
                    return Ready(after=Seconds(time.time() - server.record.started))
            time.sleep(_POLL)


def _read_log_on(server: Server) -> None:
    """An endpoint may answer before the log's last lines are read, and the ledger needs those."""
    until = time.monotonic() + _LOG_BEHIND
    while server.phase != "ready" and time.monotonic() < until and server.check() is None:
        time.sleep(_POLL)


def _cause(outcome: Outcome) -> str:
    if isinstance(outcome, OutOfMemory):
        return f"out of memory in phase {outcome.phase}: {outcome.message}"
    if isinstance(outcome, TimedOut):
        return f"no progress in phase {outcome.phase} for {outcome.after:.0f} s"
    if isinstance(outcome, Crashed):
        how = outcome.signal or f"exit code {outcome.exit_code}"
        said = outcome.message or "it wrote nothing, so it may never have begun"
        return f"the engine ended in phase {outcome.phase} ({how}): {said}"
    return "the engine was stopped"
