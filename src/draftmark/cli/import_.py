"""`draftmark import`: results of other tools into the store."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json
from draftmark.errors import BadInput

_SHOWN = 50
"""Points in the table: a benchmark with a length of its own for each request has thousands."""


def import_(
    files: Annotated[list[Path], typer.Argument(help="Result files, with details of each request.")],
    model: Annotated[str | None, typer.Option(help="The model, where a file does not name it.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Keep results of vLLM, SGLang, GuideLLM, AIPerf or llama-bench as a run, to explain and compare them."""
    from draftmark import __version__
    from draftmark.physics.figures import figures
    from draftmark.report.sweep import points as table
    from draftmark.sweep.imports import read_results
    from draftmark.sweep.keep import Keeper
    from draftmark.trial import Environment

    _require_each_once(files)
    found = [imported for file in files for imported in read_results(file)]
    points = [point for imported in found for point in imported.points]
    name = model or next((imported.model for imported in found if imported.model), None)
    with open_store(store) as opened:
        run = opened.begin_run("import", sys.argv[1:], Environment(draftmark=__version__, model=name))
        keep = Keeper(opened, run)
        for point in points:
            keep(point)
        opened.end_run(run, "done")
    if json:
        show_json({"run": run, "points": [{"point": point, "figures": figures(point)} for point in points]})
        return
    show(table(points[:_SHOWN]))
    if len(points) > _SHOWN:
        show(f"{len(points) - _SHOWN:,} more points are not shown; `draftmark export {run}` has them all.")
    tools = ", ".join(sorted({imported.tool for imported in found}))
    show(f"Run {run} is kept, read as results of {tools}.")


def _require_each_once(files: list[Path]) -> None:
    """Raise BadInput for a file that is named twice: its requests would count twice."""
    seen: set[Path] = set()
    for file in files:
        place = file.resolve()
        if place in seen:
            raise BadInput("is given twice", place=str(file), remedy="name each file once")
        seen.add(place)
