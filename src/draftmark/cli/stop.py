"""`draftmark stop`: end an engine that was left running."""

from typing import Annotated

import typer

from draftmark.cli.options import JsonOption, StoreOption, show, show_json
from draftmark.cli.serving import close_run


def stop(
    which: Annotated[
        str | None, typer.Argument(help="Name, process id, port or URL; the only running one otherwise.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the running engines instead.")] = False,
    grace: Annotated[float, typer.Option(min=0, help="Seconds it gets to end in order.")] = 20.0,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """End an engine that `draftmark serve` left running: its processes, its container, or its remote process."""
    from draftmark import serve
    from draftmark.report.serve import running
    from draftmark.serve import records

    if listing:
        found = records.running()
        if json:
            show_json(found)
        else:
            show(running(found) if found else "No engine that Draftmark started is running.")
        return
    record = serve.stop(which, grace)
    close_run(store, record)
    if json:
        show_json(record)
    else:
        show(f"{record.name} is stopped; its log is {record.log}")
