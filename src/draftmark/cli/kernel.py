"""`draftmark kernel`: check and measure the verify kernel. The kernels are a program of their own, started here."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from draftmark.cli.options import JsonOption, show, show_json
from draftmark.errors import BadInput, CheckFailed, EngineFailed

app = typer.Typer(help="The verify kernel: compile it for every GPU, or measure it on this one.", no_args_is_help=True)

_NEEDED = ("torch", "triton")


@app.command()
def check(json: JsonOption = False) -> None:
    """Compile every kernel for every architecture, without a GPU: registers, spills, shared memory against limits."""
    from draftmark.report import kernel as report

    rows = list(_rows("check"))
    if json:
        show_json(rows)
    else:
        show(report.compiled(rows))
    faults = [row for row in rows if row["fault"]]
    if faults:
        first = faults[0]
        raise CheckFailed(
            f"{len(faults)} of {len(rows)} configurations have a fault; {first['fault']}",
            place=f"{first['kernel']} {first['tile']} on sm_{first['architecture']}",
        )


@app.command()
def bench(
    shapes: Annotated[int, typer.Option(min=1, help="Random shapes that are checked before anything is timed.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the random shapes.")] = 1,
    kernel: Annotated[Literal["hopper", "portable"] | None, typer.Option(help="This one, whatever the GPU.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Leave out the other kernels that are installed.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure on this GPU: correct first, then time, bandwidth and the share of the floor, beside other kernels."""
    from draftmark.report import kernel as report

    arguments = ["--shapes", str(shapes), "--seed", str(seed), *(["--kernel", kernel] if kernel else [])]
    rows = list(_rows("bench", *arguments, *(["--alone"] if alone else [])))
    if json:
        show_json(rows)
    else:
        show(*report.measured(rows))
    red = next((row for row in rows if row["row"] == "check" and not row["green"]), None)
    if red is not None:
        raise CheckFailed(_redness(red), place=red["worst_shape"])


def _redness(row: dict[str, Any]) -> str:
    """What made the check red."""
    if row["worst"] is None:
        return "an output is not a number"
    if row["worst"] >= row["tolerance"]:
        return f"relative error {row['worst']:.2e} where {row['tolerance']:.0e} is allowed"
    return "results differ from run to run"


def _rows(command: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """What the kernels' program prints, row by row.

    Raises:
        BadInput: a package, or the GPU, is missing.
        EngineFailed: the program ended with an error of its own.
    """
    import importlib.util
    import subprocess
    import sys

    import msgspec

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(f"{' and '.join(missing)} not installed", remedy="pip install 'draftmark[kernels]'")
    argv = [sys.executable, "-m", "draftmark.kernels", command, *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        output, errors = program.communicate()
    rows: list[dict[str, Any]] = [msgspec.json.decode(line) for line in output.splitlines()]
    refused = next((row for row in rows if row.get("row") == "error"), None)
    if refused is not None:
        raise BadInput(refused["why"])
    if program.returncode not in (0, 1) or not rows:
        raise EngineFailed(errors.strip().splitlines()[-1] if errors.strip() else "it printed nothing", place=argv[2])
    yield from rows
