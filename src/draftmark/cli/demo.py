"""`draftmark demo`: all of it in a minute on any machine."""

from pathlib import Path
from typing import Annotated

import typer

from draftmark.cli.options import show


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for all that it writes.")] = Path(
        "draftmark-demo"
    ),
) -> None:
    """Predict, start, measure, explain and report two tiny models on this machine's CPU."""
    from draftmark.demo import demo as run

    done = run(output, tell=show)
    show(
        f"\nreport   {done.report}\nruns     {done.store} (draftmark runs --store {done.store})"
        f"\nlogs     {done.logs}\nmodels   {done.folder / 'models'}"
    )
