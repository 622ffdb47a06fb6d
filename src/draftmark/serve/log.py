"""The engine's whole log: a file that the engine itself writes, read here as it grows."""

import datetime
from pathlib import Path

from draftmark.engines.lines import LineCutter
from draftmark.errors import BadInput


def new_log(folder: Path, engine: str, port: int) -> Path:
    """A fresh file for one start's log.

    Raises:
        BadInput: the folder cannot be written.
    """
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S-%f")
    path = folder / f"{stamp}-{engine}-{port}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except OSError as error:
        remedy = "name a folder that can be written with --logs"
        raise BadInput(f"no log can be written there ({error.strerror})", place=str(folder), remedy=remedy) from error
    return path


class Tail:
    """Reads what was added to a file since the last look, as numbered lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._cutter = LineCutter()
        self._number = 0

    def poll(self) -> list[tuple[int, str]]:
        """Lines completed since the last call."""
        lines = []
        while block := self._file.read(1 << 20):
            lines += self._numbered(self._cutter.feed(block))
        return lines

    def finish(self) -> list[tuple[int, str]]:
        """The rest, when nobody writes any more; a last line without a newline counts."""
        return self.poll() + self._numbered(self._cutter.finish())

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    @property
    def partial(self) -> str:
        """The line being written, as a terminal would show it."""
        return self._cutter.partial

    def _numbered(self, lines: list[str]) -> list[tuple[int, str]]:
        start, self._number = self._number + 1, self._number + len(lines)
        return list(enumerate(lines, start))
