"""`draftmark diagnose`: why an engine died, from its log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json

if TYPE_CHECKING:
    from draftmark.diagnose import Diagnosis


def diagnose(
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOG]...", help="Files, or - for standard input.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="A trial of the store, by its number.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Say why an engine died: cause, the lines that prove it, and what to change, in order of certainty."""
    from draftmark.errors import BadInput
    from draftmark.report.diagnose import diagnosis

    if trial is not None:
        found = [_of_trial(trial, store)]
    elif logs:
        found = [_of_file(name) for name in logs]
    else:
        raise BadInput("no log given", place="LOG", remedy="name a file, - for standard input, or --trial N")
    if json:
        show_json(found)
    else:
        show(*(diagnosis(one) for one in found))


def _of_file(name: str) -> "Diagnosis":
    from draftmark.diagnose import diagnose as examine
    from draftmark.errors import BadInput

    if name == "-":
        return examine(sys.stdin.buffer, "standard input")
    try:
        with Path(name).open("rb") as stream:
            return examine(stream, name)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=name, remedy="name the engine's log file") from error


def _of_trial(number: int, store: Path | None) -> "Diagnosis":
    from draftmark.diagnose import diagnose as examine
    from draftmark.errors import BadInput

    with open_store(store) as opened:
        record = next((one for one in opened.trials() if one.id == number), None)
    if record is None or record.log is None:
        raise BadInput(
            "no such trial, or it has no log", place=f"--trial {number}", remedy="`draftmark runs` lists runs"
        )
    try:
        with Path(record.log).open("rb") as stream:
            return examine(stream, record.log, record.configuration)
    except OSError as error:
        raise BadInput(f"its log cannot be read: {error.strerror}", place=record.log) from error
