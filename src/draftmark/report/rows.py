"""A table where there is room for it, and a block a row where there is not: no number is ever cut."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_BETWEEN: Final = "   "


class Row(NamedTuple):
    """Cells in the order of the headings."""

    cells: tuple[str, ...]
    style: str = ""


class Rows:
    """Rows under headings; the last heading is that of words, the others those of numbers."""

    def __init__(self, headings: Sequence[str], rows: Sequence[Row]) -> None:
        self._headings, self._rows = tuple(headings), tuple(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by Rich, which knows the width."""
        table = self._table()
        unbounded = options.update(max_width=10_000)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        for row in self._rows:
            yield Text("\n".join(self._block(row, options.max_width)), style=row.style)
            yield Text()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Called by Rich: blocks fit any width."""
        return Measurement(1, options.max_width)

    def _table(self) -> Table:
        table = Table()
        for heading in self._headings:
            table.add_column(heading, justify="left" if heading == self._headings[-1] else "right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row.cells, style=row.style)
        return table

    def _block(self, row: Row, width: int) -> list[str]:
        """Headings and cells as many to a line as fit, none broken but by a width that holds not even one."""
        lines = [""]
        for heading, cell in zip(self._headings, row.cells, strict=True):
            if not cell:
                continue
            pair = f"{heading} {cell}"
            joined = f"{lines[-1]}{_BETWEEN}{pair}" if lines[-1] else pair
            if len(joined) <= width or not lines[-1]:
                lines[-1] = joined
            else:
                lines.append(pair)
        return lines
