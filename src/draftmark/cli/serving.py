"""One supervised start from the command line: predict, start, keep, show, hold, and say why it died."""

import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import typer

from draftmark.cli.options import show, show_json
from draftmark.cli.ready import load_draft, where
from draftmark.cli.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from draftmark.configuration import Configuration
    from draftmark.engines.adapter import Adapter
    from draftmark.finding import Finding
    from draftmark.model import Model
    from draftmark.observation import Phase
    from draftmark.planner import Plan
    from draftmark.serve import Others, Place, Prediction, Server
    from draftmark.serve.records import Record
    from draftmark.store import Store, TrialRecord
    from draftmark.trial import Outcome, Trial

PORT = 30000
"""Where an engine over several hosts answers unless told: all hosts must know it before any is started."""
_CHECK_SECONDS = 1.0
_HEALTH_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
"""How long a server may leave its health endpoint unanswered before the user is told."""


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    configuration: "Configuration"
    place: "Place"
    timeout: float | None
    gpu: str | None
    hosts: tuple[str, ...]
    template: str
    detach: bool
    json: bool


def serve(store: "Store", screen: Screen, wanted: Wanted) -> None:
    """Start, keep, show and hold one engine. What makes a start impossible is said before anything is predicted."""
    from draftmark import serve as supervise
    from draftmark.engines import known

    configuration = wanted.configuration
    settled = supervise.settle(configuration, known.adapter(configuration.engine).requirement, wanted.place)
    expected = _predict(configuration, wanted.gpu, screen, here=wanted.place.launcher.kind == "local")
    prediction = supervise.Prediction()
    if expected is not None:
        plan, _ = expected
        prediction = supervise.Prediction(ledgers=plan.ledgers, pool=plan.pool)
    with (
        _run(store, wanted, expected, settled.version) as run,
        _other_hosts(wanted) as (adapter, others),
        supervise.Kept(store, run, configuration, prediction) as kept,
    ):
        try:
            server = kept.start(
                lambda progress: supervise.serve(
                    configuration,
                    adapter=adapter,
                    place=settled,
                    patience=_patience(wanted.timeout),
                    prediction=prediction,
                    progress=progress,
                ),
                screen,
            )
        except supervise.StartFailed as failure:
            _show_trial(failure.trial, kept.findings, json=wanted.json)
            raise supervise.StartFailed(failure.trial, shown=bool(kept.findings)) from failure
        screen.rest()
        show_ready(server, json=wanted.json, detached=wanted.detach)
        if wanted.detach:
            server.detach()
            if others is not None:
                others.leave()
            return
        died = watch(server, screen)
        kept.died(died)
        raise_death(server, died, kept.findings, json=wanted.json)


def _patience(timeout: float | None) -> "Mapping[Phase, float]":
    from draftmark.serve import PATIENCE

    return PATIENCE if timeout is None else dict.fromkeys(PATIENCE, timeout)


@contextmanager
def _other_hosts(wanted: Wanted) -> "Iterator[tuple[Adapter | None, Others | None]]":
    """The engine's processes on all hosts but the first, and the adapter that starts the first."""
    from draftmark import serve as supervise
    from draftmark.engines import known

    if not wanted.hosts:
        yield None, None
        return
    engine = wanted.configuration.engine
    spread = supervise.spread(engine)
    commands = spread.host_commands(
        wanted.configuration,
        python=wanted.place.python or "python3",
        port=wanted.place.port or PORT,
        hosts=wanted.hosts,
    )
    with supervise.Others(commands, wanted.hosts, wanted.template, wanted.configuration, wanted.place.logs) as others:
        yield supervise.OnFirstHost(known.adapter(engine), spread, wanted.hosts), others


@contextmanager
def farewell(screen: Screen) -> "Iterator[None]":
    """Say what an interrupt did, and exit as its signal wants; a terminal that is gone is told nothing."""
    from draftmark.serve import HungUp, Terminated

    said = "interrupted: the engine is stopped, its log and the trial are kept"
    try:
        yield
    except HungUp:
        raise typer.Exit(128 + signal.SIGHUP) from None
    except Terminated:
        screen.say(said)
        raise typer.Exit(128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        screen.say(said)
        raise


@contextmanager
def _run(store: "Store", wanted: Wanted, expected: "tuple[Plan, Model] | None", version: str | None) -> "Iterator[int]":
    """A run in the store, closed as it ended, and left open while an engine that was left running lives.

    The model and device of its prediction are kept for later ones, and the engine's version where it is known already.
    """
    from draftmark import __version__
    from draftmark.errors import DraftmarkError
    from draftmark.serve import HungUp
    from draftmark.trial import Environment

    plan, model = expected or (None, None)
    engine = wanted.configuration.engine
    environment = Environment(
        draftmark=__version__,
        engine=engine,
        engine_version=__version__ if engine == "embedded" else version,
        model=wanted.configuration.model,
        device=plan.device.name if plan is not None else None,
    )
    run = store.begin_run("serve", tuple(sys.argv[1:]), environment)
    store.describe_run(run, model=model)
    try:
        yield run
    except HungUp:
        raise
    except KeyboardInterrupt:
        store.end_run(run, "interrupted")
        raise
    except DraftmarkError:
        store.end_run(run, "failed")
        raise
    if not wanted.detach:
        store.end_run(run, "done")


def close_run(path: "Path | None", record: "Record", outcome: "Outcome | None" = None) -> None:
    """End the run that started an engine which was left running and is gone now, where the store holds it.

    It was stopped unless `outcome` says otherwise.
    """
    from draftmark.cli.options import open_store
    from draftmark.store import default_path
    from draftmark.trial import Stopped
    from draftmark.units import Seconds

    if not (path or default_path()).is_file():
        return
    with open_store(path) as store:
        trial = _trial_of(store, record)
        if trial is None:
            return
        store.set_outcome(trial.id, outcome or Stopped(after=Seconds(time.time() - record.started)))
        store.end_trial(trial.id)
        if store.run(trial.run).status is None:
            store.end_run(trial.run, "done")


def kept_prediction(path: "Path | None", record: "Record") -> "Prediction":
    """What was expected of an engine that was left running; empty where the store does not hold it."""
    from draftmark.cli.options import open_store
    from draftmark.serve import Prediction
    from draftmark.store import default_path

    if not (path or default_path()).is_file():
        return Prediction()
    with open_store(path) as store:
        trial = _trial_of(store, record)
    return Prediction() if trial is None else Prediction(ledgers=trial.predicted, pool=trial.predicted_pool)


def _trial_of(store: "Store", record: "Record") -> "TrialRecord | None":
    """The trial that started a running engine; None where the store has none of this very process."""
    trial = store.trial_at(record.url, time.time())
    return trial if trial is not None and trial.handle is not None and trial.handle.pid == record.pid else None


def show_ready(server: "Server", *, json: bool, detached: bool = False) -> None:
    """What the start made of the memory, and where the server answers."""
    from draftmark.report.serve import ready

    if server.outcome is not None:
        _show_trial(server.trial(server.outcome), (), json=json)
    if not json:
        show(ready(server.record, detached=detached))


def _show_trial(kept: "Trial", found: "tuple[Finding, ...]", *, json: bool) -> None:
    from draftmark.report.findings import findings
    from draftmark.report.serve import trial

    if json:
        show_json({"trial": kept, "findings": found})
    else:
        show(trial(kept), findings(found))


def watch(server: "Server", screen: Screen) -> "Outcome":
    """Look after a running engine until it dies; an interrupt ends this."""
    import httpx

    silent_since: float | None = None
    told = False
    with httpx.Client(timeout=_HEALTH_SECONDS) as client:
        while (died := server.check()) is None:
            time.sleep(_CHECK_SECONDS)
            if server.healthy(client):
                silent_since, told = None, False
                continue
            silent_since = silent_since or time.monotonic()
            if not told and time.monotonic() - silent_since > _SILENCE_SECONDS:
                told = True
                screen.say(f"note: {server.url}/health has not answered for {_SILENCE_SECONDS:.0f} s")
    return died


def raise_death(server: "Server", died: "Outcome", found: "tuple[Finding, ...]", *, json: bool) -> NoReturn:
    """Show why a server died.

    Raises:
        EngineFailed: always.
    """
    from draftmark.errors import EngineFailed

    _show_trial(server.trial(died), found, json=json)
    remedy = "" if found else f"`draftmark diagnose {server.log_path}`"
    raise EngineFailed("the engine died while it served", place=server.log_path, remedy=remedy)


def _predict(
    configuration: "Configuration", gpu: str | None, screen: Screen, *, here: bool
) -> "tuple[Plan, Model] | None":
    """What is to be expected, printed before it is measured; other engines may know more than the planner does.

    Raises:
        BadInput: the embedded engine, started on this machine, cannot do what is asked.
    """
    from draftmark.checkpoint.load import load_model
    from draftmark.engines import known
    from draftmark.errors import BadInput
    from draftmark.planner import plan
    from draftmark.report.serve import pools

    try:
        machine, free, _ = where(gpu, configuration.device, configuration.engine)
        command = known.adapter(configuration.engine).command(configuration, python="python", host="", port=0)
        whole = known.adapter(configuration.engine).parse_command(command.argv, command.environment).configuration
        model = load_model(configuration.model)
        found = plan(model, whole, machine, free=free, draft=load_draft(whole, None, model))
    except BadInput as error:
        if configuration.engine == "embedded" and here:
            raise
        screen.say(f"note: no prediction: {error}")
        return None
    screen.say(pools(found.pool, None).plain)
    return found, model
