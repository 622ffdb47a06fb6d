"""Arguments as an engine lists them on a line of its log, as words of a command again."""

import ast
import json
import re
from collections.abc import Collection
from typing import Final

_LISTED: Final = re.compile(
    r"""(?<![\w.'"-])['"]?(\w+)['"]?(?:=|: )('[^']*'|"[^"]*"|\[[^\]]*\]|\{[^{}]*\}|[^\s,(){}\[\]]+)(?=[,)} ]|$)"""
)
"""One argument among those that an engine lists in its log: its name, and its value as Python prints it."""
_UNSET: Final = ("None", "'none'", "'null'", "'auto'", "''", "[]", "{}")


def logged(line: str, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Arguments again, from a line on which an engine lists them (`ServerArgs(a=1, b='x')`, `{'a': 1, 'b': 'x'}`).

    Args:
        line: the line.
        names: flags that are wanted, where the line has more than was given; all of them otherwise.
    """
    words: list[str] = []
    for field, value in _LISTED.findall(line):
        flag = "--" + field.replace("_", "-")
        if value == "False":
            flag = flag.replace("--", "--no-", 1)
        if value not in _UNSET and (names is None or flag in names):
            words += [flag, *_words(value)]
    return tuple(words)


def _words(value: str) -> list[str]:
    """What follows a flag, from how Python prints its value."""
    if value in ("True", "False"):
        return []
    try:
        read_back = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return [value]
    if isinstance(read_back, list):
        return [str(one) for one in read_back]
    return [json.dumps(read_back)] if isinstance(read_back, dict) else [str(read_back)]
