"""Options that configure an engine, which several subcommands share: how they are typed and explained."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from draftmark.units import Tokens

Gpu = Annotated[
    str | None,
    typer.Option(metavar="NAME[:COUNT]", help="GPUs to predict for, like h200:8; those of this machine otherwise."),
]
Device = Annotated[
    Literal["cpu", "cuda"] | None, typer.Option(help="For the embedded engine; cpu where there is no GPU.")
]
Dtype = Annotated[str | None, typer.Option(help="The dtype to serve in; the checkpoint's otherwise.")]
MemFraction = Annotated[float | None, typer.Option(min=0, max=1, help="The engine's memory fraction.")]
PoolTokens = Annotated[str | None, typer.Option(metavar="N", help="An explicit pool, like 200k.")]
Memory = Annotated[str | None, typer.Option(metavar="BYTES", help="The embedded engine's limit, like 2Gi.")]
Chunk = Annotated[str | None, typer.Option(metavar="N", help="Most tokens of one prefill step.")]
MaxRunning = Annotated[int | None, typer.Option(min=1, help="Most requests at once.")]
MaxContext = Annotated[str | None, typer.Option(metavar="N", help="Longest request that is admitted.")]
Revision = Annotated[str | None, typer.Option(help="Revision of the repository.")]


def tokens(flag: str, text: str | None) -> "Tokens | None":
    """A number of tokens as people write it.

    Raises:
        BadInput: it is not one.
    """
    from draftmark.errors import BadInput
    from draftmark.units import parse_tokens

    if text is None:
        return None
    try:
        return parse_tokens(text)
    except ValueError as error:
        raise BadInput(str(error), place=flag) from error
