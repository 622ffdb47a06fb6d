"""Which blocks of a serving engine's log need not be read: those without any text that a sign of trouble needs."""

from typing import Final

from draftmark.diagnose import signs

LONGEST_TEXT: Final = 64
"""Bytes; no text that is looked for is longer."""
_ROOTS: Final = (
    "rror", "xception", "emory", "Traceback", "version ", "server_args=", "non-default args", "start engine=",
    "Load weight", "loading", "atal", "cudaMalloc", "ALLOC_FAILED", "bad_alloc", "OUT_OF_MEMORY",
)  # fmt: skip
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_TEXTS: Final = (*_ROOTS, *(text for text in signs.TEXTS if not any(root in text for root in _ROOTS)))
_NUMBERED: Final = tuple(text.encode() for text in _TEXTS if any(sign.isdigit() for sign in text))
_WORDS: Final = tuple(text.encode() for text in _TEXTS if text.encode() not in _NUMBERED)
_MOST_SHAPES: Final = 4096
_LONGEST_SHAPE: Final = 400
"""Bytes of a line that is worth remembering."""


class Calm:
    """Looks at blocks. A server repeats few lines with other numbers, so each shape is searched only once."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def __call__(self, block: bytes) -> bool:
        """Whether nothing in it hints at trouble or at another start."""
        fresh = set(block.translate(_DIGITS).split(b"\n")) - self._known
        text = b"\n".join(fresh)
        if any(words in text for words in _WORDS) or any(numbered in block for numbered in _NUMBERED):
            return False
        if len(self._known) > _MOST_SHAPES:
            self._known.clear()
        self._known |= {line for line in fresh if len(line) <= _LONGEST_SHAPE}
        return True
