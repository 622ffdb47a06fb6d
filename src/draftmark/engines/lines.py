"""Bytes of a log, cut to lines that can be searched: colour codes and binary junk removed, memory bounded."""

import re
from typing import Final

LONGEST: Final = 32 * 1024
"""Bytes kept from each end of a line; what lies between is dropped (a progress bar can be megabytes long)."""

_ANSI: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\r")


def clean(raw: bytes) -> str:
    """Text of one line without colour codes and control characters; bytes that are not UTF-8 become U+FFFD."""
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    return raw.translate(None, _CONTROL).decode("utf-8", "replace").rstrip("\r")


class LineCutter:
    """Takes blocks as they were read and gives whole lines; what follows the last newline waits for the rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> list[str]:
        """Lines that this block completes, in order."""
        *whole, rest = (self._rest + block).split(b"\n")
        self._rest = _bounded(rest)
        return [clean(_bounded(raw)) for raw in whole]

    def skip(self, block: bytes) -> int:
        """Pass over a block without making lines of it; how many lines it completes."""
        _, newline, rest = block.rpartition(b"\n")
        self._rest = _bounded(rest if newline else self._rest + rest)
        return block.count(b"\n")

    @property
    def pending(self) -> bytes:
        """What waits for the rest of its line."""
        return self._rest

    def finish(self) -> list[str]:
        """The last line, where the log does not end with a newline."""
        rest, self._rest = self._rest, b""
        return [clean(rest)] if rest else []

    @property
    def partial(self) -> str:
        """What the line being written shows now: the last state of a progress bar."""
        return clean(self._rest).rsplit("\r", 1)[-1]


def _bounded(raw: bytes) -> bytes:
    return raw if len(raw) <= 2 * LONGEST else raw[:LONGEST] + raw[-LONGEST:]
