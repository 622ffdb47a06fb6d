"""`draftmark plan`: predict memory before anything is rented or started."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json
from draftmark.cli.pasted import launch_words, read_command, refuse_beside, refuse_together

if TYPE_CHECKING:
    from draftmark.configuration import Configuration
    from draftmark.engines.adapter import Command, Pasted
    from draftmark.hardware import Machine
    from draftmark.model import Model
    from draftmark.planner import Past, Plan, Reason, Solution, Target
    from draftmark.units import Bytes, Tokens


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
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="GPUs, like h200:8; those of this machine otherwise.")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="For the embedded engine; cpu where there is no GPU.")
    ] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor-parallel ranks; over all GPUs otherwise.", show_default=False)
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline stages.", show_default=False)] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype to serve in; the checkpoint's otherwise.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="The cache's dtype, in the engine's words.")] = None,
    mem_fraction: Annotated[float | None, typer.Option(min=0, max=1, help="The engine's memory fraction.")] = None,
    pool_tokens: Annotated[str | None, typer.Option(metavar="N", help="An explicit pool, like 200k.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="BYTES", help="The embedded engine's limit, like 2Gi.")] = None,
    chunk: Annotated[str | None, typer.Option(metavar="N", help="Most tokens of one prefill step.")] = None,
    max_running: Annotated[int | None, typer.Option(min=1, help="Most requests at once.")] = None,
    max_context: Annotated[str | None, typer.Option(metavar="N", help="Longest request that is admitted.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="N", help="Target: tokens of context, like 200k; solves for the flags.")
    ] = None,
    output: Annotated[str, typer.Option(metavar="N", help="Target: tokens of output.")] = "0",
    concurrency: Annotated[int, typer.Option(min=1, help="Target: requests at once.")] = 1,
    draft: Annotated[str | None, typer.Option(metavar="MODEL", help="The draft model; its config is read.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the repository.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Predict an engine's memory and pool on given GPUs; with --context, find the flags that reach a target."""
    from draftmark.configuration import Configuration, Parallel
    from draftmark.engines.adapter import Pasted
    from draftmark.report.plan import plan as render
    from draftmark.report.solve import solve as render_solution

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
        solution = ready.solve(wanted_target)
        if json:
            show_json(solution)
        else:
            show(*render_solution(solution, launch(solution)))
        if solution.first is None:
            raise typer.Exit(1)
        return
    found = ready.plan()
    if json:
        show_json(found)
    else:
        show(*render(found))


class Ready(NamedTuple):
    """Everything a plan needs, loaded."""

    model: "Model"
    draft: "Model | None"
    configuration: "Configuration"
    machine: "Machine"
    free: "Bytes | None"
    history: "tuple[Past, ...]"
    pasted: "Pasted"
    fixed: frozenset[str]
    """Fields of `Parallel` that the user set."""
    reasons: "tuple[Reason, ...]" = ()
    """Why the layout is what it is, where the user left it open."""

    def spread(self) -> "Ready":
        """The same over all GPUs, where the user left the layout open."""
        from draftmark.planner import laid_out

        configuration, reasons = laid_out(self.model, self.configuration, self.machine, self.fixed)
        return self._replace(configuration=configuration, reasons=reasons)

    def plan(self) -> "Plan":
        """The prediction."""
        from draftmark.planner import plan as make_plan

        found = make_plan(
            self.model, self.configuration, self.machine, free=self.free, draft=self.draft, history=self.history
        )
        return self._complete(found)

    def solve(self, target: "Target") -> "Solution":
        """Flags that reach a target."""
        import msgspec

        from draftmark.planner import solve

        found = solve(
            self.model,
            self.configuration,
            self.machine,
            target,
            fixed=self.fixed,
            free=self.free,
            draft=self.draft,
            history=self.history,
        )
        return msgspec.structs.replace(found, asked=self._complete(found.asked))

    def _complete(self, found: "Plan") -> "Plan":
        """A plan with what only the command line knows."""
        import msgspec

        return msgspec.structs.replace(
            found,
            reasons=(*self.reasons, *found.reasons),
            notes=(*self.pasted.notes, *found.notes),
            not_understood=self.pasted.not_understood,
        )


def learned_from(store: Path | None) -> "tuple[Past, ...]":
    """Past starts in the store; none where there is no store yet."""
    from draftmark.planner.history import past_starts
    from draftmark.store import default_path

    if not (store or default_path()).is_file():
        return ()
    with open_store(store) as opened:
        return past_starts(opened)


def launch(solution: "Solution") -> "Command | None":
    """The command line of the configuration to launch first; None where nothing reaches the target."""
    from draftmark.engines.known import adapter

    first = solution.first
    if first is None:
        return None
    return adapter(first.asked.engine).command(first.asked, python="python", host="0.0.0.0", port=30000)


def gather(
    pasted: "Pasted",
    *,
    gpu: str | None,
    device: str | None,
    draft: str | None,
    revision: str | None,
    history: "tuple[Past, ...]",
) -> Ready:
    """Load what the configuration names.

    Raises:
        BadInput: something that it names cannot be had.
    """
    import msgspec

    from draftmark.checkpoint.load import load_model
    from draftmark.errors import BadInput
    from draftmark.planner import check

    wanted = pasted.configuration
    if not wanted.model:
        raise BadInput("no model given", place="draftmark plan", remedy="name one, or paste a launch command after --")
    check(wanted)
    if None not in (revision, pasted.revision) and revision != pasted.revision:
        cause = f"contradicts the command's {pasted.revision}"
        raise BadInput(cause, place=f"--revision {revision}", remedy="leave one of them out")
    model = load_model(wanted.model, revision=revision or pasted.revision)
    machine, free, kind = where(gpu, device, wanted.engine)
    wanted = msgspec.structs.replace(wanted, device=kind)
    drafting = load_draft(wanted, draft, model)
    if draft is not None:
        wanted = with_draft(wanted, draft, model, drafting or model)
    return Ready(
        model=model,
        draft=drafting,
        configuration=wanted,
        machine=machine,
        free=free,
        history=history,
        pasted=pasted,
        fixed=pasted.layout,
    )


def with_draft(wanted: "Configuration", named: str, model: "Model", draft: "Model") -> "Configuration":
    """The configuration with the draft that `--draft` names: in the speculation asked for, or in what it implies.

    Raises:
        BadInput: the draft does not tell how it is used.
    """
    import msgspec

    from draftmark.planner.speculation import implied

    asked = wanted.speculative
    if asked is None:
        return msgspec.structs.replace(wanted, speculative=implied(wanted, model, draft, named))
    return msgspec.structs.replace(wanted, speculative=msgspec.structs.replace(asked, draft_model=named))


def load_draft(wanted: "Configuration", draft: str | None, model: "Model") -> "Model | None":
    """The draft model that the flag or the command names; None where draft layers lie in the model itself."""
    from draftmark.checkpoint.load import load_model

    name = draft or (wanted.speculative.draft_model if wanted.speculative is not None else None)
    if name is None or name in (wanted.model, model.name):
        return None
    return load_model(name)


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
    here = "leave --device cuda out" if engine == "embedded" else "plan this machine's CPU with --engine embedded"
    raise BadInput("no GPU here", place="--gpu", remedy=f"say which ones to plan for, like --gpu h200:8, or {here}")
