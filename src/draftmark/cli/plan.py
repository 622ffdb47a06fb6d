"""`draftmark plan`: predict memory before anything is rented or started."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from draftmark.cli.options import JsonOption, show, show_json

if TYPE_CHECKING:
    from draftmark.hardware import Machine
    from draftmark.units import Bytes, Tokens


def plan(
    model: Annotated[str, typer.Argument(help="A folder, a config.json, or a Hugging Face repository id.")],
    engine: Annotated[Literal["embedded", "sglang", "vllm"], typer.Option(help="The engine to plan for.")] = "sglang",
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="GPUs, like h200:8; those of this machine otherwise.")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="For the embedded engine; cpu where there is no GPU.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype to serve in; the checkpoint's otherwise.")] = None,
    mem_fraction: Annotated[float | None, typer.Option(min=0, max=1, help="The engine's memory fraction.")] = None,
    pool_tokens: Annotated[str | None, typer.Option(metavar="N", help="An explicit pool, like 200k.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="BYTES", help="The embedded engine's limit, like 2Gi.")] = None,
    chunk: Annotated[str | None, typer.Option(metavar="N", help="Most tokens of one prefill step.")] = None,
    max_running: Annotated[int | None, typer.Option(min=1, help="Most requests at once.")] = None,
    max_context: Annotated[str | None, typer.Option(metavar="N", help="Longest request that is admitted.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the repository.")] = None,
    json: JsonOption = False,
) -> None:
    """Predict what an engine will make of a model and its GPUs: ledger, pool, what fits, what may fail."""
    from draftmark.checkpoint.load import load_model
    from draftmark.configuration import Configuration
    from draftmark.planner import plan as predict
    from draftmark.report.plan import plan as render

    machine, free, kind = where(gpu, device, engine)
    wanted = Configuration(
        engine=engine,
        model=model,
        device=kind,
        dtype=dtype,
        memory_fraction=mem_fraction,
        pool_tokens=tokens("--pool-tokens", pool_tokens),
        chunk=tokens("--chunk", chunk),
        max_running=max_running,
        context=tokens("--max-context", max_context),
        flags=("--memory", memory) if memory else (),
    )
    found = predict(load_model(model, revision=revision), wanted, machine, free=free)
    if json:
        show_json(found)
    else:
        show(*render(found))


def tokens(flag: str, text: str | None) -> "Tokens | None":
    """A number of tokens as people write it.

    Raises:
        BadInput: it is not one.
    """
    from draftmark.errors import BadInput
    from draftmark.units import parse_tokens

    if text is None:
        return None
    try:
        return parse_tokens(text)
    except ValueError as error:
        raise BadInput(str(error), place=flag) from error


def where(
    gpu: str | None, device: str | None, engine: str
) -> "tuple[Machine, Bytes | None, Literal['cpu', 'cuda', 'rocm']]":
    """The machine to plan for, and the memory that is free there now where that can be known.

    Raises:
        BadInput: no GPU was given and this machine has none, for an engine that needs one.
    """
    from draftmark.errors import BadInput
    from draftmark.hardware import Machine
    from draftmark.machine.catalogue import parse_machine
    from draftmark.machine.detect import detect_gpus, host, host_memory

    if gpu is not None:
        machine = parse_machine(gpu)
        return machine, None, machine.device.kind
    found = detect_gpus() if device != "cpu" else None
    if found is not None:
        return found, None, "cuda"
    if engine == "embedded" and device != "cuda":
        return Machine(device=host(), count=1), host_memory().free, "cpu"
    raise BadInput("no GPU here", place="--gpu", remedy="say which ones to plan for, like --gpu h200:8")
