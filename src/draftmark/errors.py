"""What can go wrong, as a tree; every message says cause, place and remedy in one line.

DraftmarkError
├── CheckFailed   exit 1: a check or gate was not passed
├── BadInput      exit 2: what the user gave cannot be used
└── EngineFailed  exit 3: an inference engine did not start, or died
"""

from typing import ClassVar


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
        return " ".join(f"{where}{self.cause}{what_next}".split())


class CheckFailed(DraftmarkError):
    """A check or gate was not passed."""

    exit_code = 1


class BadInput(DraftmarkError):
    """What the user gave cannot be used."""

    exit_code = 2


class EngineFailed(DraftmarkError):
    """An inference engine did not start, or died."""

    exit_code = 3
