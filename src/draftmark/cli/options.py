"""Options and output that every subcommand shares."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from draftmark.store import Store

_WIDTH = 160
"""Columns where output goes to a file or a pipe: no terminal to fit, and no number to cut."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="The database of runs. [env: DRAFTMARK_STORE]", show_default=False),
]


def open_store(path: Path | None) -> "Store":
    """The store that `--store`, $DRAFTMARK_STORE or the user's data folder names; made where it is not there."""
    from draftmark.store import Store, default_path

    return Store(path or default_path())


def read_store(path: Path | None) -> "Store":
    """The same, to read only: nothing is made or changed.

    Raises:
        BadInput: there is no store yet.
    """
    from draftmark.store import Store, default_path

    return Store(path or default_path(), read_only=True)


def show(*pieces: "RenderableType", stream: "TextIO | None" = None) -> None:
    """Print renderables to standard output or `stream`; plain text where that is not a terminal."""
    from rich.console import Console
    from rich.text import Text

    stream = stream or sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDTH)
    for piece in pieces:
        # A line that must not be wrapped, such as a command to paste, stays one line.
        console.print(piece, soft_wrap=isinstance(piece, Text) and bool(piece.no_wrap))


def show_json(value: object) -> None:
    """Print one value as JSON."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
