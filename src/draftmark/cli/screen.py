"""Shows on standard error what an engine does while it starts, so that standard output stays for the result."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from draftmark.serve import Event


class Screen:
    """A progress callback: lines that stay, and on a terminal one line that changes."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("") if sys.stderr.isatty() else None

    def __enter__(self) -> "Self":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, event: "Event") -> None:
        """Show one event."""
        from draftmark.report.serve import lasting, passing

        line = lasting(event)
        if line is not None:
            self.say(line)
        elif self._status is not None and (text := passing(event)) is not None:
            from rich.markup import escape

            self._status.update(escape(text[: self._console.width - 4]))

    def rest(self) -> None:
        """The start is over: only lines that stay from here on."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, markup=False, soft_wrap=True)
