"""A start that is kept in the store, step by step, so that nothing is lost when Draftmark is killed."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from draftmark import __version__
from draftmark.configuration import Configuration
from draftmark.finding import Finding
from draftmark.serve import autopsy
from draftmark.serve.events import Event, Progress, Started, ignore
from draftmark.serve.server import Prediction, Server
from draftmark.serve.start import StartFailed, StartRefused
from draftmark.store import Handle, Store
from draftmark.trial import Crashed, Environment, Outcome, OutOfMemory, TimedOut, Trial


class Kept:
    """One trial in the store. Leaving it ends the engine and keeps how it ended.

    Args:
        store: where it is kept.
        run: the run that it belongs to.
        configuration: what is to be started.
        prediction: what is expected; kept before the start.
    """

    def __init__(self, store: Store, run: int, configuration: Configuration, prediction: Prediction) -> None:
        self._store = store
        environment = Environment(draftmark=__version__, engine=configuration.engine, model=configuration.model)
        self.trial = store.begin_trial(run, configuration, environment)
        store.set_prediction(self.trial, prediction.ledgers, prediction.pool)
        self._server: Server | None = None
        self._observed = 0
        self._run = run
        self.findings: tuple[Finding, ...] = ()
        """Why it died, once it has."""

    def start(self, starting: Callable[[Progress], Server], progress: Progress = ignore) -> Server:
        """Run `starting`, which starts the engine and tells its progress, and keep what comes of it.

        Raises:
            StartFailed: it did not become ready; that is kept too.
            StartRefused: the engine cannot use what it was given; kept too.
        """

        def tell(event: Event) -> None:
            if isinstance(event, Started):
                handle = Handle(url=event.url, pid=event.pid, created=event.created, launcher=event.launcher)
                self._store.set_handle(self.trial, handle, event.log)
            progress(event)

        try:
            self._server = starting(tell)
        except (StartFailed, StartRefused) as error:
            self._keep(error.trial)
            raise
        finally:
            if self._server is None:
                self._store.end_trial(self.trial)
        if self._server.outcome is not None:
            self._keep(self._server.trial(self._server.outcome))
        return self._server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        self._server.__exit__(kind, error, trace)
        if self._server.detached:
            return
        if self._server.outcome is not None:
            self._store.set_outcome(self.trial, self._server.outcome)
        self._store.end_trial(self.trial)

    def died(self, outcome: Outcome) -> None:
        """Keep the death of an engine that had been ready, with what it said last."""
        if self._server is not None:
            self._keep(self._server.trial(outcome))

    def _keep(self, trial: Trial) -> None:
        self._store.set_outcome(self.trial, trial.outcome)
        self._store.set_observed(self.trial, trial.observed, trial.pool)
        self._store.set_environment(self.trial, trial.environment)
        self._store.add_observations(self.trial, trial.observations[self._observed :])
        self._observed = len(trial.observations)
        if isinstance(trial.outcome, OutOfMemory | Crashed | TimedOut):
            self.findings = autopsy.findings(trial.log, trial.configuration)
            self._store.add_findings(self._run, self.findings, self.trial)
