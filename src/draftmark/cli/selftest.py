"""`draftmark selftest`: hold this machine's measuring against a server whose truth is known."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from draftmark.cli.options import JsonOption, show, show_json

if TYPE_CHECKING:
    from draftmark.selftest.check import ShapeCheck


def selftest(
    requests: Annotated[int, typer.Option(min=1, help="Requests for each shape of stream.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="How long each speed is measured.")] = 2.0,
    json: JsonOption = False,
) -> None:
    """Check that times and counts are true on this machine, in every shape that a stream may have."""
    from draftmark.errors import CheckFailed
    from draftmark.report.selftest import selftest as table
    from draftmark.selftest.check import run
    from draftmark.selftest.verdict import failures

    report = run(requests=requests, seconds=seconds, on_shape=_silent if json else _tell)
    if json:
        show_json(report)
    else:
        show(table(report))
    if failed := failures(report):
        raise CheckFailed(
            f"{len(failed)} of the checks were not met, first: {failed[0]}",
            remedy="end what else runs on this machine, and run it again",
        )


def _tell(checked: "ShapeCheck") -> None:
    """How it goes on, so that some twenty seconds are not spent in silence."""
    print(f"measured: {checked.shape}", file=sys.stderr)


def _silent(_: "ShapeCheck") -> None:
    pass
