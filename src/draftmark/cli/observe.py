"""`draftmark observe`: take in a start from its log, so that the next plan learns from it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftmark.cli.engine_options import Revision
from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json

if TYPE_CHECKING:
    from draftmark.engines.adapter import Pasted
    from draftmark.serve.observe import Seen


def observe(
    log: Annotated[Path, typer.Argument(help="A log of SGLang or vLLM, from its first line on.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: the launch command, where the log does not list it.", show_default=False),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="Where it ran; this machine otherwise.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The engine's version, where the log does not say.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Its model, where the log names a folder that is not on this machine.")
    ] = None,
    draft: Annotated[str | None, typer.Option(metavar="MODEL", help="The same for the draft model.")] = None,
    revision: Revision = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Lay a start's memory, as its log states it, beside what is predicted for it, and keep both to learn from."""
    from draftmark.cli.ready import gather
    from draftmark.report.observe import observed
    from draftmark.serve.observe import keep, look

    seen = look(log)
    ready = gather(
        asked(seen, tuple(command or ()), model=model, version=engine_version),
        gpu=gpu,
        device=None,
        draft=draft,
        revision=revision,
        history=(),
    )
    with open_store(store) as opened:
        found = keep(opened, seen, ready.plan(), ready.model, ready.machine, tuple(sys.argv[2:]))
    if json:
        show_json(found)
    else:
        show(*observed(found))


def asked(seen: "Seen", command: tuple[str, ...], *, model: str | None, version: str | None) -> "Pasted":
    """What the start was asked to be: the pasted command, or else what its log lists.

    Raises:
        BadInput: the command is for another engine, or nothing tells the engine's version.
    """
    import msgspec

    from draftmark.cli.pasted import read_command
    from draftmark.errors import BadInput

    pasted = read_command(command, version) if command else seen.asked
    configuration = pasted.configuration
    if configuration.engine != seen.engine:
        raise BadInput(f"the command starts {configuration.engine}, the log is {seen.engine}'s", place=seen.log)
    version = version or seen.asked.configuration.version
    if version is None and seen.engine != "embedded":
        raise BadInput(
            f"{seen.engine} does not log its version", place=seen.log, remedy="name it with --engine-version"
        )
    configuration = msgspec.structs.replace(configuration, version=version)
    if model is not None:
        speculative = configuration.speculative
        if speculative is not None and speculative.draft_model == configuration.model:
            configuration = msgspec.structs.replace(
                configuration, speculative=msgspec.structs.replace(speculative, draft_model=None)
            )
        configuration = msgspec.structs.replace(configuration, model=model)
    return msgspec.structs.replace(pasted, configuration=configuration)
