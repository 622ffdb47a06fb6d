"""How a sweep goes on, on standard error, so that standard output stays for the result."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftmark.sample import Point
    from draftmark.sweep import Event


@contextmanager
def progress(*, shown: bool) -> "Iterator[Callable[[Event], None]]":
    """Where events go: to a growing table or lines on standard error, or nowhere."""
    if not shown:
        yield lambda _: None
        return
    screen = _Progress()
    try:
        yield screen
    finally:
        screen.close()


class _Progress:
    """The table as it grows on a terminal; a line a step on standard error elsewhere.

    Drawn between batches alone: drawing while streams are open would delay their stamps.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._points: dict[tuple[object, ...], Point] = {}
        self._line = ""
        self._live = Live(console=self._console, transient=True, refresh_per_second=4, auto_refresh=False)
        if self._console.is_terminal:
            self._live.start()

    def __call__(self, event: "Event") -> None:
        from draftmark.report import sweep as report
        from draftmark.sweep import Asking, Kept, Sending

        if isinstance(event, Kept):
            point = event.point
            self._points[point.concurrency, point.rate, point.asked] = point
        elif isinstance(event, Sending | Asking):
            self._line = report.sending(event) if isinstance(event, Sending) else report.asking(event)
        else:
            self._console.print(report.started(event), soft_wrap=not self._console.is_terminal)
        if self._console.is_terminal:
            from rich.console import Group
            from rich.text import Text

            self._live.update(Group(report.points(tuple(self._points.values())), Text(self._line)), refresh=True)
        elif isinstance(event, Sending | Asking):
            self._console.print(self._line, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()
