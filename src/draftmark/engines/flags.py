"""Launch flags, both ways: argv -> Configuration, Configuration -> argv. Each engine brings its table."""

import ast
import difflib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.units import parse_tokens

Kind = Literal["integer", "tokens", "number", "text", "on", "off"]
"""What follows a flag; `on` and `off` are switches that set true or false."""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag that our vocabulary has a word for. `field` may be nested: `parallel.tensor`."""

    names: tuple[str, ...]
    field: str
    kind: Kind
    choices: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    """The engine's words for ours: (theirs, ours)."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One flag as it was written."""

    name: str
    values: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """As arguments again."""
        return (self.name, *self.values)


_LISTED: Final = re.compile(
    r"""(?<![\w.'"-])['"]?(\w+)['"]?(?:=|: )('[^']*'|"[^"]*"|\[[^\]]*\]|\{[^{}]*\}|[^\s,(){}\[\]]+)(?=[,)} ]|$)"""
)
"""One argument among those that an engine lists in its log: its name, and its value as Python prints it."""
_UNSET: Final = ("None", "'none'", "'null'", "'auto'", "''", "[]", "{}")
_FLAG: Final = re.compile(r"--?[a-zA-Z][\w.-]*")


def split(argv: tuple[str, ...]) -> Iterator[Given]:
    """Flags with what follows each; words before the first flag have an empty name."""
    name = ""
    values: list[str] = []
    for word in argv:
        head, equals, tail = word.partition("=")
        if _FLAG.fullmatch(head):
            if name or values:
                yield Given(name=name, values=tuple(values))
            name, values = head.replace("_", "-") if head.startswith("--") else head, [tail] if equals else []
        else:
            values.append(word)
    if name or values:
        yield Given(name=name, values=tuple(values))


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


def read(flag: Flag, given: Given) -> Any:
    """The value of one flag.

    Raises:
        BadInput: there is none, or it is not of the flag's kind.
    """
    if flag.kind in ("on", "off"):
        return flag.kind == "on"
    if len(given.values) != 1:
        raise BadInput(f"expects one value and has {len(given.values)}", place=given.name, remedy="check the command")
    text = dict(flag.aliases).get(given.values[0], given.values[0])
    try:
        if flag.kind == "integer":
            return int(text)
        if flag.kind == "tokens":
            return parse_tokens(text) if not text.startswith("-") else int(text)
        if flag.kind == "number":
            return float(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not a {'number' if flag.kind == 'number' else 'whole number'}",
            place=given.name,
            remedy="check the command",
        ) from error
    if flag.choices and text not in flag.choices:
        near = difflib.get_close_matches(text, flag.choices, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(f"unknown value {text!r}", place=given.name, remedy=f"{hint}known: {', '.join(flag.choices)}")
    return text


def nest(values: dict[str, Any]) -> dict[str, Any]:
    """`{"parallel.tensor": 8}` as nested dictionaries, for msgspec to make structs of."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        head, _, tail = path.partition(".")
        if tail:
            nested.setdefault(head, {})[tail] = value
        else:
            nested[head] = value
    return nested


def named_layout(values: dict[str, Any]) -> frozenset[str]:
    """Fields of `Parallel` among the (nested) field values."""
    return frozenset(path.partition(".")[2] for path in values if path.startswith("parallel."))


def configure(values: dict[str, Any]) -> Configuration:
    """A configuration from (nested) field values.

    Raises:
        BadInput: a value is out of the field's domain.
    """
    try:
        return msgspec.convert(nest(values), Configuration)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), place="launch command", remedy="check the command") from error


def write(table: tuple[Flag, ...], configuration: Configuration) -> tuple[str, ...]:
    """Arguments for every field of the configuration that differs from 'the engine's own default'."""
    words: list[str] = []
    for flag in table:
        value: Any = configuration
        for part in flag.field.split("."):
            value = None if value is None else getattr(value, part)
        if flag.kind in ("on", "off"):
            if value is (flag.kind == "on"):
                words.append(flag.names[0])
        elif value is not None and not (flag.field.startswith("parallel.") and value == 1):
            back = {ours: theirs for theirs, ours in flag.aliases}
            words += [flag.names[0], back.get(str(value), str(value))]
    return tuple(words)
