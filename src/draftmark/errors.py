"""What can go wrong, as a tree; every message says cause, place and remedy in one line.

DraftmarkError
├── CheckFailed   exit 1: a check or gate was not passed
├── BadInput      exit 2: what the user gave cannot be used
└── EngineFailed  exit 3: an inference engine did not start, or died
"""

import re
from typing import ClassVar, Final

LINE: Final = 300
"""Characters of a foreign message that are shown."""
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control and format characters: they move a terminal's cursor, turn text around, or cannot be encoded."""


def harmless(text: str) -> str:
    """Text from outside (a model's name, a message, output) without what a terminal would obey; lines and tabs stay."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in "\n\t" else "\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, length: int = LINE) -> str:
    """Foreign text on one line, made harmless and cut to `length` characters with an ellipsis."""
    line = harmless(" ".join(text[: 4 * length].split()))
    return line if len(line) <= length else line[: length - 1] + "…"


class DraftmarkError(Exception):
    """Base of all errors meant for the user.

    `cause` says what is wrong, `place` where (a file, flag or URL; may be empty), `remedy` what to do about it.
    """

    exit_code: ClassVar[int]

    def __init__(self, cause: str, *, place: str = "", remedy: str = "") -> None:
        self.cause, self.place, self.remedy = cause, place, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        what_next = f"; {self.remedy}" if self.remedy else ""
        return harmless(" ".join(f"{where}{self.cause}{what_next}".split()))


class CheckFailed(DraftmarkError):
    """A check or gate was not passed."""

    exit_code = 1


class BadInput(DraftmarkError):
    """What the user gave cannot be used."""

    exit_code = 2


class EngineFailed(DraftmarkError):
    """An inference engine did not start, or died."""

    exit_code = 3
