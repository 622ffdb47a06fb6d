"""The main job on two tiny models with random weights, on any machine: predict, start, measure, explain, report."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec
from rich.console import RenderableType
from rich.text import Text

from draftmark import __version__
from draftmark.checkpoint.load import load_model
from draftmark.configuration import Configuration
from draftmark.errors import BadInput, EngineFailed
from draftmark.explain import explain_run
from draftmark.hardware import Machine
from draftmark.machine.bandwidth import measure_host_bandwidth
from draftmark.machine.detect import host, host_memory
from draftmark.planner import plan
from draftmark.report.explain import explanation
from draftmark.report.page import chapter, write_page
from draftmark.report.plan import plan as plan_report
from draftmark.report.serve import lasting
from draftmark.report.serve import trial as trial_report
from draftmark.report.sweep import sending
from draftmark.report.sweep import sweep as sweep_report
from draftmark.serve import Kept, Note, PhaseEntered, Place, Prediction, Started, serve
from draftmark.store import Store
from draftmark.sweep import Options, Sending, sweep
from draftmark.sweep.keep import Keeper
from draftmark.trial import Environment, Ready
from draftmark.units import Tokens

DEPTHS: Final = tuple(Tokens(depth) for depth in (256, 512, 1024, 2048, 3072, 4096))
OUTPUT: Final = Tokens(24)
REPEATS: Final = 5
SECONDS: Final = 5.0
"""Bounds for one depth, so that a busy machine does not take its time with noise."""
MEMORY: Final = "512Mi"
"""What each engine may hold, so that the pool is the same on any machine that has this much."""
SHAPES: Final = {
    "gqa": "grouped-query attention, Llama's shape",
    "mla": "latent attention, DeepSeek-V3's shape",
}


class Tell(Protocol):
    """Shows pieces of a report as they come."""

    def __call__(self, *pieces: RenderableType) -> None:
        """Show them."""


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of what the demo wrote, and the numbers of its runs."""

    folder: str
    store: str
    report: str
    logs: str
    models: str
    runs: tuple[int, ...]


def demo(folder: Path, *, tell: Tell) -> Demo:
    """Run the main job in `folder`, which is made where it is not there; everything written is in it.

    Raises:
        BadInput: the folder cannot be written, or the embedded engine is not installed.
        EngineFailed: the engine did not start, or died.
    """
    models = _write_models(folder, tell)
    path, page, logs = folder / "demo.db", folder / "report.html", folder / "logs"
    runs = []
    with Store(path) as store:
        for shape, words in SHAPES.items():
            tell(Text(f"\n{shape}: {words}", style="bold"))
            with _run(store, models / shape) as run:
                _measure(store, run, models / shape, logs, tell)
                runs.append(run)
        chapters = [chapter(store.export(run)) for run in runs]
    write_page(chapters, title="Draftmark demo: two tiny models on this machine", path=page)
    return Demo(
        folder=str(folder), store=str(path), report=str(page), logs=str(logs), models=str(models), runs=tuple(runs)
    )


@contextmanager
def _run(store: Store, model: Path) -> Iterator[int]:
    """A run that is closed however it ends."""
    environment = Environment(
        draftmark=__version__, engine="embedded", engine_version=__version__, model=model.name, device=host().name
    )
    run = store.begin_run("demo", ["demo"], environment)
    try:
        yield run
    except KeyboardInterrupt:
        store.end_run(run, "interrupted")
        raise
    except BaseException:
        store.end_run(run, "failed")
        raise
    store.end_run(run, "done")


def _measure(store: Store, run: int, path: Path, logs: Path, tell: Tell) -> None:
    """Predict, start, measure and explain one model."""
    model = load_model(str(path))
    store.describe_run(run, model=model, bandwidth=measure_host_bandwidth())
    wanted = Configuration(engine="embedded", model=str(path), device="cpu", flags=("--memory", MEMORY))
    predicted = plan(model, wanted, Machine(device=host(), count=1), free=host_memory().free)
    tell(*plan_report(predicted))
    prediction = Prediction(ledgers=predicted.ledgers, pool=predicted.pool)

    def progress(event: object) -> None:
        if isinstance(event, Sending):
            if event.repeat == 1:
                tell(f"measuring at {sending(event)}")
        elif isinstance(event, Started | PhaseEntered | Note):
            tell(lasting(event) or "")

    with Kept(store, run, wanted, prediction) as kept:
        server = kept.start(
            lambda listen: serve(wanted, place=Place(logs=logs), prediction=prediction, progress=listen, bound=True),
            progress,
        )
        assert isinstance(server.outcome, Ready), "serve returns servers that are ready"
        tell(trial_report(server.trial(server.outcome)))
        result = sweep(
            server.url,
            DEPTHS,
            Options(output=OUTPUT, most_repeats=REPEATS, point_seconds=SECONDS),
            sink=Keeper(store, run, trial=kept.trial),
            on_event=progress,
            alive=lambda: server.check() is None,
        )
        tell(sweep_report(result))
    if result.stopped is not None:
        raise EngineFailed(result.stopped, place=server.log_path, remedy="the log says more")
    tell(explanation(explain_run(store.export(run))))


def _write_models(folder: Path, tell: Tell) -> Path:
    """The two checkpoints, made by the embedded engine's own program, so that torch stays out of this process."""
    models = folder / "models"
    tell("Writing two tiny models with random weights")
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror}", place=str(folder), remedy="choose another --output"
        ) from error
    done = subprocess.run(
        [sys.executable, "-m", "draftmark.embedded.tiny", str(models)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInput(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no models were written", place="demo"
        )
    return models
