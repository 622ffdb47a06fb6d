"""Everything that a prediction needs, loaded from what the command line names."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from draftmark.cli.options import open_store

if TYPE_CHECKING:
    from draftmark.configuration import Configuration
    from draftmark.engines.adapter import Command, Pasted
    from draftmark.hardware import Machine
    from draftmark.model import Model
    from draftmark.planner import Past, Plan, Reason, Solution, Target
    from draftmark.units import Bytes


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
