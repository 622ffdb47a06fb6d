"""The main job on two tiny models with random weights, on any machine: predict, start, measure, explain, report."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
from draftmark.planner import Plan, plan
from draftmark.report.explain import explanation
from draftmark.report.page import chapter, write_page
from draftmark.report.plan import plan as plan_report
from draftmark.report.serve import comparison
from draftmark.report.sweep import point_row
from draftmark.sample import Point
from draftmark.serve import Place, Prediction, serve
from draftmark.serve.kept import Kept
from draftmark.store import Store
from draftmark.sweep import Options, sweep
from draftmark.trial import Environment
from draftmark.units import Tokens

DEPTHS: Final = tuple(Tokens(depth) for depth in (256, 512, 1024, 2048, 3072, 4096))
OUTPUT: Final = Tokens(24)
MEMORY: Final = "512Mi"
"""What each engine may hold, so that the pool is the same on any machine that has this much."""
SHAPES: Final = {
    "gqa": "grouped-query attention, Llama's shape",
    "mla": "latent attention, DeepSeek-V3's shape",
}

Tell = Callable[[RenderableType], None]


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo wrote."""

    folder: Path
    store: Path
    report: Path
    logs: Path
    runs: tuple[int, ...]


def demo(folder: Path, *, tell: Tell) -> Demo:
    """Run the main job in `folder`, which is made where it is not there; everything written is in it.

    Raises:
        BadInput: the folder cannot be written, or the embedded engine is not installed.
        EngineFailed: the engine did not start, or died.
    """
    models = _write_models(folder, tell)
    done = Demo(
        folder=folder, store=folder / "demo.db", report=folder / "report.html", logs=folder / "logs", runs=()
    )
    runs = []
    with Store(done.store) as store:
        for shape, words in SHAPES.items():
            tell(Text(f"\n{shape}: {words}", style="bold"))
            with _run(store, models / shape) as run:
                _measure(store, run, models / shape, done.logs, tell)
                runs.append(run)
        chapters = [chapter(store.export(run)) for run in runs]
    write_page(chapters, title="Draftmark demo: two tiny models on this machine", path=done.report)
    return msgspec.structs.replace(done, runs=tuple(runs))


@contextmanager
def _run(store: Store, model: Path) -> Iterator[int]:
    """A run that is closed however it ends."""
    environment = Environment(draftmark=__version__, engine="embedded", model=model.name, device=host().name)
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
    model = load_model(str(path))
    store.describe_run(run, model=model, bandwidth=measure_host_bandwidth())
    wanted = Configuration(engine="embedded", model=str(path), device="cpu", flags=("--memory", MEMORY))
    predicted = plan(model, wanted, Machine(device=host(), count=1), free=host_memory().free)
    tell(plan_report(predicted))
    prediction = Prediction(ledgers=predicted.ledgers, pool=predicted.pool)
    with Kept(store, run, wanted, prediction) as trial:
        server = trial.start(lambda progress: serve(wanted, place=Place(logs=logs), prediction=prediction, progress=progress))
        tell(comparison(server.trial(server.outcome)))
        tell(Text(point_row.heading()))
        result = sweep(
            server.url, DEPTHS, Options(output=OUTPUT), sink=recorder(store, run, trial.trial, tell), alive=server.alive
        )
    if result.stopped is not None:
        raise EngineFailed(result.stopped, place=server.log_path)
    tell(explanation(explain_run(store.export(run))))


def _write_models(folder: Path, tell: Tell) -> Path:
    """The two checkpoints, made by the embedded engine's own program, so that torch stays out of this process."""
    models = folder / "models"
    tell("Writing two tiny models with random weights")
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", place=str(folder), remedy="choose another --output") from error
    done = subprocess.run(
        [sys.executable, "-m", "draftmark.embedded.tiny", str(models)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInput(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no models were written", place="demo")
    return models
