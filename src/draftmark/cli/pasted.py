"""A launch command that a user pasted, and options that contradict it or each other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftmark.configuration import Configuration
    from draftmark.engines.adapter import Pasted

_OPTIONS = {
    "parallel": "--tp and --pp", "dtype": "--dtype", "kv_dtype": "--kv-dtype", "memory_fraction": "--mem-fraction",
    "pool_tokens": "--pool-tokens", "chunk": "--chunk", "max_running": "--max-running", "context": "--max-context",
    "flags": "--memory",
}  # fmt: skip
"""Options that a launch command says in its own words, by the field that they fill."""


def launch_words(model: str | None, command: list[str] | None) -> tuple[str, ...]:
    """The words of a pasted command; none where only a model is named.

    Raises:
        BadInput: a model is named beside a command.
    """
    from draftmark.engines.launch import is_launch
    from draftmark.errors import BadInput

    words = (*([model] if model else []), *(command or []))
    if not command:
        return words if model is not None and is_launch(model) else ()
    if model is not None and not is_launch(model) and is_launch(command[0]):
        raise BadInput("both a model and a launch command", place=model, remedy="leave the model to the command")
    return words


def refuse_beside(
    pasted: "Pasted", options: "Configuration", engine: str | None, layout: frozenset[str] = frozenset()
) -> None:
    """See that nothing stands beside a pasted command that the command says itself.

    Args:
        pasted: the command.
        options: what the options alone ask for.
        engine: the engine that `--engine` names.
        layout: fields of `Parallel` that options set, be it to their default.

    Raises:
        BadInput: something does; it would be ignored.
    """
    from draftmark.configuration import Configuration
    from draftmark.errors import BadInput

    starts = pasted.configuration.engine
    if engine is not None and engine != starts:
        cause = f"the command starts {starts}, not {engine}"
        raise BadInput(cause, place="--engine", remedy="leave the option out, or paste the other engine's command")
    nothing = Configuration(engine=options.engine, model=options.model)
    for field, flags in _OPTIONS.items():
        if getattr(options, field) != getattr(nothing, field) or (field == "parallel" and layout):
            raise BadInput("does not go with a pasted command", place=flags, remedy="say it in the command itself")


def refuse_together(configuration: "Configuration", *, gpu: str | None, device: str | None, draft: str | None) -> None:
    """See that `plan`'s options do not contradict each other.

    Raises:
        BadInput: they do.
    """
    from draftmark.errors import BadInput

    embedded = configuration.engine == "embedded"
    contradictions = {
        "--device": (device is not None and not embedded, "only the embedded engine is planned for another device"),
        "--memory": ("--memory" in configuration.flags and not embedded, "only the embedded engine has such a limit"),
        "--draft": (draft is not None and embedded, "the embedded engine has no speculative decoding"),
        "--device cpu": (device == "cpu" and gpu is not None, f"contradicts --gpu {gpu}"),
    }
    for place, (found, cause) in contradictions.items():
        if found:
            raise BadInput(cause, place=place, remedy="leave it out")


def read_command(words: tuple[str, ...], version: str | None) -> "Pasted":
    """A pasted launch command: assignments to the environment, the program, its flags.

    Args:
        words: as the shell split them, or all in one word.
        version: the engine's; else an image's tag may tell it.

    Raises:
        BadInput: it starts none of the engines that are known, or the engine refuses its flags.
    """
    import msgspec

    from draftmark.engines import sglang_flags, vllm_flags
    from draftmark.engines.launch import find_launch

    launch = find_launch(words)
    parse = sglang_flags.parse_flags if launch.engine == "sglang" else vllm_flags.parse_flags
    pasted = parse(launch.words, launch.environment, version or launch.version)
    notes = pasted.notes
    if version is None and launch.version is not None:
        notes = (*notes, f"{launch.engine} {launch.version}, by the image's tag")
    asked = msgspec.structs.replace(pasted.configuration, version=version or launch.version)
    return msgspec.structs.replace(pasted, configuration=asked, notes=notes)
