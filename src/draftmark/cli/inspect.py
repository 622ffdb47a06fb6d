"""`draftmark inspect`: what a server that is already running says of itself."""

from typing import Annotated

import typer

from draftmark.cli.options import JsonOption, show, show_json


def inspect(
    url: Annotated[str, typer.Argument(help="Where the server answers, like http://127.0.0.1:30000.")],
    log: Annotated[str | None, typer.Option(metavar="FILE", help="Its log, where Draftmark did not start it.")] = None,
    json: JsonOption = False,
) -> None:
    """Show the ledger, headroom, pool, limits and settings of a running server, without a restart."""
    from draftmark.report.inspect import inspection
    from draftmark.serve.inspect import inspect as look

    found = look(url, log)
    if json:
        show_json(found)
    else:
        show(*inspection(found))
