"""`draftmark serve`: start an engine, tell what really happened, and watch over it."""

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json
from draftmark.cli.plan import tokens, where
from draftmark.cli.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmark.configuration import Configuration, EngineName
    from draftmark.finding import Finding
    from draftmark.planner import Plan
    from draftmark.serve import Place, Server
    from draftmark.store import Store
    from draftmark.trial import Outcome, Trial

_CHECK_SECONDS = 1.0
_HEALTH_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
"""How long a server may leave its health endpoint unanswered before the user is told."""


def serve(
    model: Annotated[
        str | None, typer.Argument(help="A folder, or a Hugging Face repository id; not needed with --attach.")
    ] = None,
    flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FLAGS]", help="Flags for the engine, as it spells them.")
    ] = None,
    engine: Annotated[Literal["embedded", "sglang", "vllm"], typer.Option(help="The engine to start.")] = "embedded",
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="GPUs to predict for; those of this machine otherwise.")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="For the embedded engine; cpu where there is no GPU.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype to serve in.")] = None,
    mem_fraction: Annotated[float | None, typer.Option(min=0, max=1, help="The engine's memory fraction.")] = None,
    pool_tokens: Annotated[str | None, typer.Option(metavar="N", help="An explicit pool, like 200k.")] = None,
    chunk: Annotated[str | None, typer.Option(metavar="N", help="Most tokens of one prefill step.")] = None,
    max_running: Annotated[int | None, typer.Option(min=1, help="Most requests at once.")] = None,
    max_context: Annotated[str | None, typer.Option(metavar="N", help="Longest request that is admitted.")] = None,
    dummy_weights: Annotated[
        bool, typer.Option("--dummy-weights", help="Start with made-up weights: the same memory, loaded in seconds.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable for the engine's environment.")
    ] = None,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="The Python that has the engine.")] = None,
    launcher: Annotated[
        str, typer.Option(metavar="PREFIX", help="Words before the command: docker run ... IMAGE, ssh HOST, srun ...")
    ] = "",
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [default: a free one]")] = None,
    logs: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the engine's log goes.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds it may stay in one phase. [default: minutes to hours]")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running once it is ready.")] = False,
    attach: Annotated[
        str | None, typer.Option(metavar="NAME", help="Hold an engine that was left running, instead of a start.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Start an engine under supervision: phases, prediction beside observation, and why it died if it does."""
    from draftmark import serve as supervise
    from draftmark.configuration import Configuration
    from draftmark.errors import BadInput

    if attach is not None:
        with Screen() as screen, supervise.interruptible(), supervise.attach(attach, progress=screen) as server:
            screen.rest()
            _show_ready(server, json=json)
            died = _watch(server, screen)
            _raise_death(server, died, supervise.findings(server.log_path, server.configuration), json=json)
    if model is None:
        raise BadInput("no model given", place="MODEL", remedy="name a folder or a repository id")
    configuration = Configuration(
        engine=engine,
        model=model,
        device=device or _device(engine),
        dtype=dtype,
        memory_fraction=mem_fraction,
        pool_tokens=tokens("--pool-tokens", pool_tokens),
        chunk=tokens("--chunk", chunk),
        max_running=max_running,
        context=tokens("--max-context", max_context),
        flags=(*(flags or ()), *(_dummy_weights(engine) if dummy_weights else ())),
        environment=tuple(_variable(text) for text in env or ()),
    )
    place = supervise.Place(python=python, launcher=supervise.parse_launcher(launcher), host=host, port=port, logs=logs)
    with open_store(store) as opened, Screen() as screen, supervise.interruptible(), _farewell(screen):
        _serve(opened, screen, configuration, place, timeout, gpu, detach=detach, json=json)


def _serve(
    store: "Store",
    screen: Screen,
    configuration: "Configuration",
    place: "Place",
    timeout: float | None,
    gpu: str | None,
    *,
    detach: bool,
    json: bool,
) -> None:
    """Start, keep, show and hold one engine."""
    from draftmark import serve as supervise

    expected = _predict(configuration, gpu, screen)
    prediction = supervise.Prediction()
    if expected is not None:
        prediction = supervise.Prediction(ledgers=expected.ledgers, pool=expected.pool)
    patience = dict.fromkeys(supervise.PATIENCE, timeout) if timeout is not None else supervise.PATIENCE
    with _run(store, configuration) as run, supervise.Kept(store, run, configuration, prediction) as kept:
        try:
            server = kept.start(
                lambda progress: supervise.serve(
                    configuration, place=place, patience=patience, prediction=prediction, progress=progress
                ),
                screen,
            )
        except supervise.StartFailed as failure:
            _show_trial(failure.trial, kept.findings, json=json)
            raise
        screen.rest()
        _show_ready(server, json=json)
        if detach:
            server.detach()
            return
        died = _watch(server, screen)
        kept.died(died)
        _raise_death(server, died, kept.findings, json=json)


@contextmanager
def _farewell(screen: Screen) -> "Iterator[None]":
    """Say what an interrupt did; a terminal that is gone is told nothing."""
    from draftmark.serve import HungUp

    try:
        yield
    except HungUp:
        raise
    except KeyboardInterrupt:
        screen.say("interrupted: the engine is stopped, its log and the trial are kept")
        raise


@contextmanager
def _run(store: "Store", configuration: "Configuration") -> "Iterator[int]":
    """A run in the store, closed as it ended."""
    from draftmark import __version__
    from draftmark.errors import DraftmarkError
    from draftmark.trial import Environment

    environment = Environment(draftmark=__version__, engine=configuration.engine, model=configuration.model)
    run = store.begin_run("serve", tuple(sys.argv[1:]), environment)
    try:
        yield run
    except KeyboardInterrupt:
        store.end_run(run, "interrupted")
        raise
    except DraftmarkError:
        store.end_run(run, "failed")
        raise
    store.end_run(run, "done")


def _show_ready(server: "Server", *, json: bool) -> None:
    from draftmark.report.serve import ready

    if server.outcome is not None:
        _show_trial(server.trial(server.outcome), (), json=json)
    if not json:
        show(ready(server.record))


def _show_trial(kept: "Trial", found: "tuple[Finding, ...]", *, json: bool) -> None:
    from draftmark.report.findings import findings
    from draftmark.report.serve import trial

    if json:
        show_json({"trial": kept, "findings": found})
    else:
        show(trial(kept), findings(found))


def _watch(server: "Server", screen: Screen) -> "Outcome":
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


def _raise_death(server: "Server", died: "Outcome", found: "tuple[Finding, ...]", *, json: bool) -> None:
    from draftmark.errors import EngineFailed

    _show_trial(server.trial(died), found, json=json)
    raise EngineFailed(
        "the engine died while it served", place=server.log_path, remedy=f"`draftmark diagnose {server.log_path}`"
    )


def _dummy_weights(engine: "EngineName") -> tuple[str, ...]:
    from draftmark.engines import known
    from draftmark.errors import BadInput

    flags = known.adapter(engine).capabilities.dummy_weights
    if not flags:
        raise BadInput(f"the engine {engine} cannot make up weights", place="--dummy-weights", remedy="leave it out")
    return flags


def _variable(text: str) -> tuple[str, str]:
    from draftmark.errors import BadInput

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise BadInput(f"{text!r} is not NAME=VALUE", place="--env")
    return name, value


def _device(engine: str) -> Literal["cpu", "cuda"]:
    """Where an engine runs unless told: the embedded one on CPU where there is no GPU."""
    from draftmark.machine.detect import detect_gpus

    return "cpu" if engine == "embedded" and detect_gpus() is None else "cuda"


def _predict(configuration: "Configuration", gpu: str | None, screen: Screen) -> "Plan | None":
    """What is to be expected, printed before it is measured; a start does not fail for want of a prediction."""
    from draftmark.checkpoint.load import load_model
    from draftmark.engines import known
    from draftmark.errors import BadInput
    from draftmark.planner import plan
    from draftmark.report.serve import pools

    try:
        machine, free, _ = where(gpu, configuration.device, configuration.engine)
        command = known.adapter(configuration.engine).command(configuration, python="python", host="", port=0)
        whole = known.adapter(configuration.engine).parse_command(command.argv, command.environment).configuration
        found = plan(load_model(configuration.model), whole, machine, free=free)
    except BadInput as error:
        screen.say(f"note: no prediction: {error}")
        return None
    screen.say(pools(found.pool, None).plain)
    return found
