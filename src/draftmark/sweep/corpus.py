"""Real text to make prompts of: Python's own sources (code), its manual and docstrings (prose), or the user's files.

Repeated or random text makes drafting unrealistically easy or hard; real text that never repeats within a prompt does
neither. What a prompt was made of is stated with its point.
"""

import importlib
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from draftmark.errors import BadInput

Content = Literal["code", "prose"]

LARGEST_TEXT: Final = 2**28
"""Bytes of a file of text: enough for fifty million tokens."""
_SKIPPED: Final = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "encodings", "pydoc_data"}
_DOCSTRING: Final = re.compile(r'"""(.{200,}?)"""', re.DOTALL)


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A text, read as a ring, and what it is."""

    text: str
    content: str

    def window(self, start: int, length: int) -> str:
        """`length` characters from `start` on, around the end to the beginning; never more than the whole text."""
        assert length <= len(self.text), "a window longer than the corpus would repeat it"
        start %= len(self.text)
        first = self.text[start : start + length]
        return first + self.text[: length - len(first)]


def python_corpus(content: Content, *, characters: int, seed: int) -> Corpus:
    """At least `characters` of text that ships with Python, its pieces in an order drawn by `seed`.

    Raises:
        BadInput: this Python's standard library holds less.
    """
    parts: list[str] = []
    length = 0
    for part in _parts(content, random.Random(seed)):
        parts.append(part)
        length += len(part) + 1
        if length >= characters:
            return Corpus(text="\n".join(parts), content=content)
    raise BadInput(
        f"Python's own {content} holds {length:,} characters, {characters:,} are needed at these depths",
        place="--content",
        remedy="name a longer text with --text, or take --content code",
    )


def _parts(content: Content, order: random.Random) -> Iterator[str]:
    sources = sorted(
        path for path in Path(sysconfig.get_path("stdlib")).rglob("*.py") if not _SKIPPED.intersection(path.parts)
    )
    order.shuffle(sources)
    if content == "prose":
        yield from _manual(order)
    for path in sources:
        source = path.read_text(encoding="utf-8", errors="ignore")
        if content == "code":
            yield source
        else:
            yield from _DOCSTRING.findall(source)


def _manual(order: random.Random) -> Iterator[str]:
    """Chapters of the language manual as `help()` shows them; a few Pythons ship without them."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        return
    chapters = list(topics.values())
    order.shuffle(chapters)
    yield from chapters


def file_corpus(paths: tuple[Path, ...]) -> Corpus:
    """The user's own text, all of it.

    Raises:
        BadInput: a file cannot be read as text.
    """
    parts = []
    for path in paths:
        try:
            if not path.is_file():
                raise OSError("it is no file" if path.exists() else "there is no such file")
            if path.stat().st_size > LARGEST_TEXT:
                raise OSError(f"it has more than {LARGEST_TEXT:,} bytes")
            parts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as problem:
            raise BadInput(f"cannot be read as text ({problem})", place=str(path), remedy="name a UTF-8 file") from None
    return Corpus(text="\n".join(parts), content=", ".join(path.name for path in paths))
