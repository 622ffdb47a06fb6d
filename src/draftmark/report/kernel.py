"""The verify kernel's tables: what it takes when compiled, and what it does on a GPU."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

Row = dict[str, Any]

_COMPILED: Final = ("kernel", "arch", "cache", "tile", "registers", "stack", "shared", "limit", "wgmma", "verdict")
_MEASURED: Final = ("kernel", "requests", "tokens", "nodes", "us", "low", "high", "GB/s", "floor us", "of floor")


def compiled(rows: Sequence[Row]) -> RenderableType:
    """One row a configuration."""
    table = Table()
    for name in _COMPILED:
        table.add_column(name, justify="left" if name in ("kernel", "cache", "tile", "verdict") else "right")
    for row in rows:
        fault = row["fault"]
        used = (row["registers"], row["stack"], row["shared"]) if "registers" in row else ("", "", "")
        table.add_row(
            row["kernel"],
            f"sm_{row['architecture']}",
            row["cache"],
            row["tile"],
            *map(str, used),
            str(row.get("shared_limit", "")),
            "yes" if row.get("wgmma") else "",
            Text(fault, style="red") if fault else "fits",
        )
    return table


def measured(rows: Sequence[Row]) -> list[RenderableType]:
    """The check, the ceilings and the times, in that order; no times where the check is red."""
    pieces: list[RenderableType] = [Text(_sentence(row)) for row in rows if row["row"] in ("check", "ceilings")]
    times = [row for row in rows if row["row"] == "time"]
    if times:
        pieces.append(_times(times))
    reasons = {f"left out: {row['kernel']}: {row['why']}" for row in rows if row["row"] == "left out"}
    return [*pieces, *map(Text, sorted(reasons))]


def _sentence(row: Row) -> str:
    if row["row"] == "ceilings":
        return (
            f"{row['device']}: copies {row['bandwidth'] / 1e9:,.0f} GB/s, "
            f"multiplies bf16 at {row['matrix_rate'] / 1e12:,.0f} TFLOP/s in this run"
        )
    verdict = "right" if row["green"] else "WRONG, so no speed is shown"
    again = "identical from run to run" if row["repeatable"] else "different from run to run"
    worst = "not a number" if row["worst"] is None else f"{row['worst']:.2e}"
    return f"{row['shapes']} random shapes: {verdict}, worst relative error {worst}, {again}"


def _times(rows: Sequence[Row]) -> Table:
    table = Table()
    for name in _MEASURED:
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for row in rows:
        table.add_row(
            row["kernel"],
            str(row["requests"]),
            f"{row['tokens']:,}",
            str(row["nodes"]),
            *(f"{row[name] * 1e6:,.1f}" for name in ("seconds", "low", "high")),
            f"{row['bytes_per_second'] / 1e9:,.0f}",
            f"{row['floor_seconds'] * 1e6:,.1f}",
            f"{row['of_floor']:.0%}",
        )
    return table
