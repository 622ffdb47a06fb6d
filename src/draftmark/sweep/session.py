"""A sweep as a run of the store: opened, filled point by point, closed whatever happens; or gone on with."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from draftmark import __version__
from draftmark.checkpoint.load import load_model
from draftmark.configuration import Configuration
from draftmark.diagnose import Diagnosis, diagnose
from draftmark.errors import BadInput, one_line
from draftmark.machine.bandwidth import measure_host_bandwidth
from draftmark.observation import ServerState
from draftmark.sample import Point
from draftmark.store import Status, Store, TrialRecord
from draftmark.sweep.keep import Keeper
from draftmark.sweep.options import Event, Options, Started, Sweep
from draftmark.sweep.run import sweep
from draftmark.trial import Environment


class Session:
    """Where a sweep is kept. `run` is known once the server is."""

    def __init__(
        self, *, store: Store, arguments: tuple[str, ...], resume: int | None = None, trial: int | None = None
    ) -> None:
        self.store, self.arguments, self.trial = store, arguments, trial
        self.run = resume
        self.resumed = resume is not None
        self._open = False
        self.engine: TrialRecord | None = None
        """How the server was started, where this store knows."""
        self._keeper: Keeper | None = None

    def finished(self) -> tuple[Point, ...]:
        """Closed points of the run that is gone on with.

        Raises:
            BadInput: the store has no such run.
        """
        if not self.resumed or self.run is None:
            return ()
        self.store.run(self.run)
        return tuple(record.point for record in self.store.points(self.run) if record.finished)

    def start(self, started: Started) -> None:
        """Open the run, or check that the server is the one that it began with.

        Raises:
            BadInput: the run was measured on something else.
        """
        engine = self._engine_at(started.state.url)
        here = environment(started.state, one_line(started.dialect.model), engine)
        if self.run is None:
            self.run = self.store.begin_run("sweep", self.arguments, here)
            self._describe(engine)
        else:
            before = self.store.run(self.run).environment
            if before != here:
                raise BadInput(
                    f"run {self.run} was measured on {_named(before)}, this is {_named(here)}",
                    place="--resume",
                    remedy="begin a new run",
                )
        self._open = True
        self._keeper = Keeper(self.store, self.run, trial=self.trial)

    def _engine_at(self, url: str) -> TrialRecord | None:
        """How the server was started, where this store knows."""
        return self.store.trial_at(url.replace("//localhost:", "//127.0.0.1:"), time.time())

    def _describe(self, engine: TrialRecord | None) -> None:
        """Keep what explains the run, where this store knows how the server was started."""
        self.engine = engine
        if self.run is None or engine is None:
            return
        self.trial = engine.id
        with contextlib.suppress(BadInput):
            self.store.describe_run(self.run, model=load_model(engine.configuration.model))
        if engine.configuration.device == "cpu" and engine.handle is not None and not engine.handle.launcher:
            self.store.describe_run(self.run, bandwidth=measure_host_bandwidth())

    def keep(self, point: Point) -> None:
        """The sink."""
        assert self._keeper is not None, "a sweep tells that it started before it keeps a point"
        self._keeper(point)

    @property
    def opened(self) -> bool:
        """The run was opened or gone on with: there may be points in it."""
        return self._open

    def end(self, status: Status) -> None:
        """Close the run, where it was opened or gone on with: one that was refused stays as it was."""
        if self.run is not None and self._open:
            self.store.end_run(self.run, status)


def why_lost(log: Path, configuration: Configuration | None) -> Diagnosis | None:
    """What the engine's log says of its end; None where it cannot be read."""
    try:
        with log.open("rb") as stream:
            return diagnose(stream, str(log), configuration)
    except OSError:
        return None


def run_sweep(
    url: str,
    depths: tuple[int, ...],
    options: Options,
    *,
    session: Session,
    on_event: Callable[[Event], None] = lambda _: None,
    alive: Callable[[], bool] | None = None,
) -> Sweep:
    """`sweep` into a store. Raises what it raises, with the run closed as failed or interrupted."""

    def listen(event: Event) -> None:
        if isinstance(event, Started):
            session.start(event)
        on_event(event)

    status: Status = "failed"
    try:
        result = sweep(
            url, depths, options, sink=session.keep, on_event=listen, finished=session.finished(), alive=alive
        )
        status = "done" if result.stopped is None and result.valid else "failed"
        return result
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        session.end(status)


def environment(state: ServerState, model: str, engine: TrialRecord | None = None) -> Environment:
    """What must match before runs are compared, as far as the server or its start (`engine`) says."""
    stated = engine.environment.engine_version if engine is not None else None
    return Environment(
        draftmark=__version__,
        engine=state.engine,
        engine_version=state.version or stated,
        model=model,
        device=state.device,
    )


def _named(what: Environment) -> str:
    parts = (what.model, what.engine, what.engine_version, what.device, f"with draftmark {what.draftmark}")
    return " ".join(part for part in parts if part)
