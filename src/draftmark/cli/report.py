"""`draftmark report`: one HTML page to hand on."""

from pathlib import Path
from typing import Annotated

import typer

from draftmark.cli.explain import BandwidthOption, ModelOption
from draftmark.cli.options import StoreOption, read_store, show


def report(
    runs: Annotated[list[int] | None, typer.Argument(help="Numbers of runs; the newest where none is given.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="The page's heading.")] = "How deep can it be loaded?",
    model: ModelOption = None,
    bandwidth: BandwidthOption = None,
    store: StoreOption = None,
) -> None:
    """Write one page: prediction beside measurement, the curve, why, and where every number came from."""
    from draftmark.checkpoint.load import load_model
    from draftmark.report.page import chapter, write_page

    loaded = load_model(model) if model is not None else None
    with read_store(store) as opened:
        chosen = [opened.run(run).id for run in runs] if runs else [opened.run().id]
        chapters = [chapter(opened.export(run), model=loaded, gigabytes_per_second=bandwidth) for run in chosen]
    write_page(chapters, title=title, path=output)
    show(f"wrote {output}")
