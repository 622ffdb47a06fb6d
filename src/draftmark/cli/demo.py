"""`draftmark demo`: all of it in a minute on any machine."""

import functools
import sys
from pathlib import Path
from typing import Annotated

import typer

from draftmark.cli.options import JsonOption, show, show_json


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for all that it writes.")] = Path(
        "draftmark-demo"
    ),
    json: JsonOption = False,
) -> None:
    """Predict, start, measure, explain and report two tiny models on this machine's CPU."""
    from draftmark.demo import demo as run

    done = run(output, tell=functools.partial(show, stream=sys.stderr) if json else show)
    if json:
        show_json(done)
        return
    show(
        f"\nreport   {done.report}\nruns     {done.store} (draftmark runs --store {done.store})"
        f"\nlogs     {done.logs}\nmodels   {done.models}"
    )
