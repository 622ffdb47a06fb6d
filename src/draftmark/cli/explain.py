"""`draftmark explain`: why decode costs what it costs."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from draftmark.cli.options import JsonOption, StoreOption, read_store, show, show_json

if TYPE_CHECKING:
    from draftmark.explain import Explanation
    from draftmark.store import RunExport

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODEL", help="Folder, config.json or repo id, where the run does not know its model."
    ),
]


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value} is not a bandwidth in GB/s, like 1792")
    return value


BandwidthOption = Annotated[
    float | None,
    typer.Option(
        "--bandwidth",
        metavar="GB/S",
        callback=_positive,
        help="Memory bandwidth of one GPU, to hold the cache's against.",
    ),
]


def explain(
    run: Annotated[int | None, typer.Argument(help="The run's number; the newest where none is given.")] = None,
    model: ModelOption = None,
    bandwidth: BandwidthOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Explain a run's decode curve: what is there at any depth, what grows, and how near the memory's limit it is."""
    from draftmark.report.explain import explanation as rendered

    with read_store(store) as opened:
        explained = explanation_of(opened.export(opened.run(run).id), model=model, gigabytes_per_second=bandwidth)
    if json:
        show_json(explained)
    else:
        show(rendered(explained))


def explanation_of(
    export: "RunExport", *, model: str | None = None, gigabytes_per_second: float | None = None
) -> "Explanation":
    """The explanation of one run; `model` and the bandwidth fill in what the run does not know.

    Raises:
        BadInput: no valid point of the run has a decode time.
    """
    from draftmark.errors import BadInput
    from draftmark.explain import explain_run

    loaded = None
    if model is not None:
        from draftmark.checkpoint.load import load_model

        loaded = load_model(model)
    try:
        return explain_run(export, model=loaded, gigabytes_per_second=gigabytes_per_second)
    except ValueError as error:
        raise BadInput(
            str(error), place=f"run {export.run.id}", remedy="`draftmark export` shows its points"
        ) from error
