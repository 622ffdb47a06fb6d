"""`draftmark serve`: start an engine, tell what really happened, and watch over it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from draftmark.cli import engine_options as options
from draftmark.cli import serving
from draftmark.cli.engine_options import tokens
from draftmark.cli.options import JsonOption, StoreOption, open_store, show_json
from draftmark.cli.screen import Screen

if TYPE_CHECKING:
    from draftmark.configuration import Configuration, EngineName


def serve(
    model: Annotated[
        str | None, typer.Argument(help="A folder, or a Hugging Face repository id; not needed with --attach.")
    ] = None,
    flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FLAGS]", help="Flags for the engine, as it spells them.")
    ] = None,
    engine: Annotated[Literal["embedded", "sglang", "vllm"], typer.Option(help="The engine to start.")] = "embedded",
    gpu: options.Gpu = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    mem_fraction: options.MemFraction = None,
    pool_tokens: options.PoolTokens = None,
    memory: options.Memory = None,
    chunk: options.Chunk = None,
    max_running: options.MaxRunning = None,
    max_context: options.MaxContext = None,
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
    hosts: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Run over these hosts: started with --launcher 'ssh {host}', or printed."),
    ] = "",
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
    from draftmark.planner import check

    if attach is not None:
        _attach(attach, store, json=json)
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
        flags=(
            *(("--memory", memory) if memory else ()),
            *(flags or ()),
            *(_dummy_weights(engine) if dummy_weights else ()),
        ),
        environment=tuple(_variable(text) for text in env or ()),
    )
    if memory and engine != "embedded":
        raise BadInput("only the embedded engine has such a limit", place="--memory", remedy="leave it out")
    check(configuration)
    names = tuple(name for name in hosts.split(",") if name)
    if names and not launcher:
        _show_commands(configuration, names, python, port, json=json)
        return
    prefix = supervise.launcher_for(launcher, names[0]) if names else supervise.parse_launcher(launcher)
    place = supervise.Place(
        python=python, launcher=prefix, host=host, port=(port or serving.PORT) if names else port, logs=logs
    )
    wanted = serving.Wanted(configuration, place, timeout, gpu, names, launcher, detach, json)
    with open_store(store) as opened, Screen() as screen, supervise.interruptible(), serving.farewell(screen):
        serving.serve(opened, screen, wanted)


def _attach(name: str, store: Path | None, *, json: bool) -> NoReturn:
    """Hold an engine that was left running until it ends or is interrupted."""
    from draftmark import serve as supervise

    with Screen() as screen, supervise.interruptible(), serving.farewell(screen):
        record = supervise.find(name)
        prediction = serving.kept_prediction(store, record)
        server = supervise.attach(record.name, prediction=prediction, progress=screen)
        try:
            with server:
                screen.rest()
                serving.show_ready(server, json=json)
                died = serving.watch(server, screen)
                serving.raise_death(server, died, supervise.findings(server.log_path, server.configuration), json=json)
        finally:
            if not server.detached:
                serving.close_run(store, server.record, server.outcome)


def _show_commands(
    configuration: "Configuration", hosts: tuple[str, ...], python: str | None, port: int | None, *, json: bool
) -> None:
    """One command for each host, to be run there by hand."""
    import shlex

    from draftmark.serve import spread

    commands = spread(configuration.engine).host_commands(
        configuration, python=python or "python3", port=port or serving.PORT, hosts=hosts
    )
    if json:
        show_json([{"host": host, "command": command} for host, command in zip(hosts, commands, strict=True)])
        return
    for host, command in zip(hosts, commands, strict=True):
        variables = [f"{name}={value}" for name, value in command.environment]
        print(f"# {host}\n{shlex.join(['env', *variables, *command.argv] if variables else command.argv)}")


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
