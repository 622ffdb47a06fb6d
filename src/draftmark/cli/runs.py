"""`draftmark runs` and `draftmark export`: what the store holds."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from draftmark.cli.options import JsonOption, StoreOption, read_store, show, show_json


def runs(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the runs that the store holds."""
    from draftmark.report.runs import runs as table

    with read_store(store) as opened:
        records = opened.runs()
    if json:
        show_json(records)
    elif records:
        show(table(records))
    else:
        show(f"{opened.path} holds no run yet.")


def export(
    run: Annotated[int | None, typer.Argument(help="The run's number; the newest where none is given.")] = None,
    form: Annotated[
        Literal["json", "csv"], typer.Option("--format", help="Everything, or one row a request.")
    ] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; standard output otherwise.")] = None,
    store: StoreOption = None,
) -> None:
    """Write one run as JSON or CSV."""
    from draftmark.errors import BadInput
    from draftmark.report.runs import as_csv, as_json

    with read_store(store) as opened:
        whole = opened.export(opened.run(run).id)
    text = as_csv(whole) if form == "csv" else as_json(whole) + "\n"
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror}", place=str(output), remedy="choose another file"
        ) from error
