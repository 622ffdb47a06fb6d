"""A launch command that a user pasted, and options that contradict it or each other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftmark.configuration import Configuration, EngineName
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
    from draftmark.errors import BadInput

    words = (*([model] if model else []), *(command or []))
    if not command:
        return words if model is not None and is_command(model) else ()
    if model is not None and "/" in model and not is_command(model) and is_command(command[0]):
        raise BadInput("both a model and a launch command", place=model, remedy="leave the model to the command")
    return words


def is_command(word: str) -> bool:
    """Whether a word begins a launch command and is no model."""
    name = word.rsplit("/", 1)[-1]
    return "=" in word or name.startswith("python") or name in ("vllm", "sglang", "env")


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

    Raises:
        BadInput: it starts none of the engines that are known.
    """
    import msgspec

    from draftmark.engines import sglang_flags, vllm_flags
    from draftmark.errors import BadInput

    rest = list(words)
    environment = []
    while rest and (rest[0] == "env" or ("=" in rest[0] and not rest[0].startswith("-"))):
        if rest[0] != "env":
            name, _, value = rest[0].partition("=")
            environment.append((name, value))
        del rest[0]
    engine: EngineName
    start = next((at + 1 for at, word in enumerate(rest) if word.endswith(("launch_server", "api_server"))), None)
    if start is not None:
        engine = "sglang" if rest[start - 1].endswith("launch_server") else "vllm"
    elif "serve" in rest[:3]:
        start = rest.index("serve") + 1
        engine = "vllm" if any("vllm" in word for word in rest[:start]) else "sglang"
    else:
        raise BadInput(
            "not a launch command of SGLang or vLLM",
            place=" ".join(words)[:80],
            remedy="paste `python -m sglang.launch_server ...` or `vllm serve ...` after --",
        )
    parse = sglang_flags.parse_flags if engine == "sglang" else vllm_flags.parse_flags
    pasted = parse(tuple(rest[start:]), tuple(environment))
    return msgspec.structs.replace(pasted, configuration=msgspec.structs.replace(pasted.configuration, version=version))
