"""`draftmark plan`: predict memory before anything is rented or started."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from draftmark.cli import engine_options as options
from draftmark.cli.engine_options import tokens
from draftmark.cli.options import JsonOption, StoreOption, show, show_json
from draftmark.cli.pasted import launch_words, read_command, refuse_beside, refuse_together
from draftmark.cli.ready import gather, launch, learned_from

if TYPE_CHECKING:
    from draftmark.cli.ready import Ready
    from draftmark.planner import Target


def plan(
    model: Annotated[
        str | None, typer.Argument(help="A folder, a config.json, or a Hugging Face repository id.", show_default=False)
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: a launch command of SGLang or vLLM.", show_default=False),
    ] = None,
    engine: Annotated[
        Literal["embedded", "sglang", "vllm"] | None, typer.Option(help="The engine to plan for. [default: sglang]")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Its version; the newest that is known otherwise.")
    ] = None,
    gpu: options.Gpu = None,
    device: options.Device = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor-parallel ranks; over all GPUs otherwise.", show_default=False)
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline stages.", show_default=False)] = None,
    dtype: options.Dtype = None,
    kv_dtype: Annotated[str | None, typer.Option(help="The cache's dtype, in the engine's words.")] = None,
    mem_fraction: options.MemFraction = None,
    pool_tokens: options.PoolTokens = None,
    memory: options.Memory = None,
    chunk: options.Chunk = None,
    max_running: options.MaxRunning = None,
    max_context: options.MaxContext = None,
    context: Annotated[
        str | None, typer.Option(metavar="N", help="Target: tokens of context, like 200k; solves for the flags.")
    ] = None,
    output: Annotated[str, typer.Option(metavar="N", help="Target: tokens of output.")] = "0",
    concurrency: Annotated[int, typer.Option(min=1, help="Target: requests at once.")] = 1,
    draft: Annotated[str | None, typer.Option(metavar="MODEL", help="The draft model; its config is read.")] = None,
    revision: options.Revision = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Predict an engine's memory and pool on given GPUs; with --context, find the flags that reach a target."""
    from draftmark.configuration import Configuration, Parallel
    from draftmark.engines.adapter import Pasted
    from draftmark.report.plan import plan as render

    words = launch_words(model, command)
    wanted = Configuration(
        engine=engine or "sglang",
        version=engine_version,
        model="" if words or model is None else model,
        parallel=Parallel(tensor=tp or 1, pipeline=pp or 1),
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_fraction=mem_fraction,
        pool_tokens=tokens("--pool-tokens", pool_tokens),
        chunk=tokens("--chunk", chunk),
        max_running=max_running,
        context=tokens("--max-context", max_context),
        flags=("--memory", memory) if memory else (),
    )
    layout = frozenset(name for name, value in (("tensor", tp), ("pipeline", pp)) if value is not None)
    pasted = Pasted(configuration=wanted, layout=layout)
    if words:
        pasted = read_command(words, engine_version)
        refuse_beside(pasted, wanted, engine, layout)
    refuse_together(pasted.configuration, gpu=gpu, device=device, draft=draft)
    wanted_target = target_of(context, output, concurrency)
    ready = gather(pasted, gpu=gpu, device=device, draft=draft, revision=revision, history=learned_from(store))
    if not words:
        ready = ready.spread()
    if wanted_target is not None:
        _show_solution(ready, wanted_target, json=json)
        return
    found = ready.plan()
    if json:
        show_json(found)
    else:
        show(*render(found))


def _show_solution(ready: "Ready", target: "Target", *, json: bool) -> None:
    """Print the flags that reach a target.

    Raises:
        Exit: none do; the code is 1.
    """
    from draftmark.report.solve import document
    from draftmark.report.solve import solve as render

    solution = ready.solve(target)
    if json:
        show_json(document(solution, launch(solution)))
    else:
        show(*render(solution, launch(solution)))
    if solution.first is None:
        raise typer.Exit(1)


def target_of(context: str | None, output: str, concurrency: int) -> "Target | None":
    """What is to be reached; None where `--context` names nothing.

    Raises:
        BadInput: a number cannot be read, or the rest of a target stands there without `--context`.
    """
    from draftmark.errors import BadInput
    from draftmark.planner import Target
    from draftmark.units import Tokens

    length = tokens("--context", context)
    if length is None and (output != "0" or concurrency != 1):
        remedy = "add --context N, the tokens of each request's prompt"
        raise BadInput("a target needs a context", place="--output and --concurrency", remedy=remedy)
    if length is None:
        return None
    return Target(context=length, output=tokens("--output", output) or Tokens(0), concurrency=concurrency)
