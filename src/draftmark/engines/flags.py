"""Launch flags, both ways: argv -> Configuration, Configuration -> argv. Each engine brings its table."""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines.adapter import Pasted
from draftmark.engines.offered import choices, options
from draftmark.engines.words import Given, Read, name_unknown, strange
from draftmark.errors import BadInput

Kind = Literal["integer", "iec", "binary", "number", "text", "on", "off"]
"""What follows a flag; `on` and `off` are switches that set true or false.

`iec` is a number as SGLang reads it, with 8k for 8,000 and 8Ki for 8,192; `binary` one as vLLM does, with 8K for 8,192.
"""


ADDRESS: Final = ("--host", "--port")
"""Flags that are given anew at every start."""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag that our vocabulary has a word for. `field` may be nested: `parallel.tensor`."""

    names: tuple[str, ...]
    field: str
    kind: Kind
    aliases: tuple[tuple[str, str], ...] = ()
    """The engine's words for ours: (theirs, ours)."""


_SCALED: Final = re.compile(r"(\d+)(\.\d+)?([a-zA-Z]+)")
IEC: Final = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
"""SGLang 0.5.23's utils/common.py: `human_readable_int`."""
BINARY: Final = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip
"""vLLM 0.33.0's utils/argparse_utils.py: `human_readable_int`."""
_SCALES: Final[dict[Kind, dict[str, int]]] = {"iec": IEC, "binary": BINARY}


def read(flag: Flag, given: Given, known: tuple[str, ...] = ()) -> Any:
    """The value of one flag; `known` are those that its engine's version takes, where it lists them.

    Raises:
        BadInput: there is none, or it is not of the flag's kind.
    """
    if flag.kind in ("on", "off"):
        return flag.kind == "on"
    if len(given.values) != 1:
        raise BadInput(f"expects one value and has {len(given.values)}", place=given.name, remedy="check the command")
    text = given.values[0]
    try:
        if flag.kind == "integer":
            return int(text)
        if flag.kind in _SCALES:
            return scaled(text, _SCALES[flag.kind])
        if flag.kind == "number":
            return float(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not a {'number' if flag.kind == 'number' else 'whole number'}",
            place=given.name,
            remedy="check the command",
        ) from error
    if known and text not in known:
        near = [one for one in known if one.startswith(text)] or difflib.get_close_matches(text, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(f"unknown value {text!r}", place=given.name, remedy=f"{hint}known: {', '.join(known)}")
    return dict(flag.aliases).get(text, text)


def scaled(text: str, scales: dict[str, int]) -> int:
    """A whole number, with one of `scales` behind it or not; `auto` is -1.

    Raises:
        ValueError: it is not one; powers of two take no decimals.
    """
    if text.lower() == "auto":
        return -1
    match = _SCALED.fullmatch(text)
    if match is None:
        return int(text)
    scale = scales.get(match[3])
    if scale is None or (match[2] is not None and scale % 1024 == 0):
        raise ValueError(f"{text!r} is not a whole number")
    return round(float(match[1] + (match[2] or "")) * scale) if match[2] else int(match[1]) * scale


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch command's flags set."""

    values: dict[str, Any]
    """By field of the configuration, nested ones with a dot; `revision` is the model's."""
    kept: tuple[str, ...]
    unknown: tuple[str, ...]


def assign(
    found: Read,
    table: tuple[Flag, ...],
    engine: EngineName,
    version: str | None,
    *,
    any_version: bool,
    kept: Collection[str],
    harmless: Collection[str],
    own: Mapping[str, Callable[[Given], dict[str, Any] | None]],
) -> Assigned:
    """Sort flags into fields, those kept verbatim, and those that are not understood.

    Args:
        found: the flags.
        table: flags that set one field.
        engine: whose flags they are.
        version: which one; the newest that was read where None.
        any_version: flags of any version are taken, and unknown ones are not refused.
        kept: flags that the planner reads by their own names.
        harmless: flags that take no memory; a command keeps them, but for where it listens.
        own: flags that set fields in a way of their own; None from them means that a value is not understood.

    Raises:
        BadInput: a value is not one that its flag can have, or the version does not have a flag.
    """
    known = {name: flag for flag in table for name in flag.names}
    values: dict[str, Any] = {}
    verbatim: list[str] = []
    unknown = [name_unknown(one, engine, version, any_version=any_version) for one in found.unknown]
    for given in found.given:
        flag = known.get(given.name) or known.get(given.written)
        set_by_own = own[given.name](given) if given.name in own else None
        if flag is not None:
            values[flag.field] = read(flag, given, choices(engine, given.name, version))
        elif set_by_own is not None:
            values |= set_by_own
        elif given.name in harmless:
            verbatim += [] if any_version or given.name in ADDRESS else given.words
        else:
            verbatim += given.words
            unknown += [] if given.name in kept else [" ".join(given.words)]
    verbatim += [word for one in found.unknown for word in one.words]
    return Assigned(values=values, kept=tuple(verbatim), unknown=tuple(unknown))


def last_value(field: str) -> Callable[[Given], dict[str, Any]]:
    """Sets a field to a flag's last value, as it stands."""
    return lambda given: {field: given.values[-1]}


def on_gpus(given: Given) -> dict[str, Any]:
    """A device sets nothing where it is a GPU.

    Raises:
        BadInput: it is another, whose memory is not planned.
    """
    device = given.values[-1] if given.values else ""
    if not device.startswith(("cuda", "auto", "rocm", "hip")):
        raise BadInput(f"{device!r} is no GPU", place=given.name, remedy="only engines on GPUs are planned")
    return {}


def refuse_file(given: Given) -> dict[str, Any]:
    """A file of settings is not read, and the answer depends on it.

    Raises:
        BadInput: always.
    """
    cause = f"the settings in {' '.join(given.values)} are not read"
    raise BadInput(cause, place=given.name, remedy="put them into the command")


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


def configure(values: dict[str, Any]) -> Configuration:
    """A configuration from (nested) field values.

    Raises:
        BadInput: a value is out of the field's domain.
    """
    try:
        return msgspec.convert(nest(values), Configuration)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), place="launch command", remedy="check the command") from error


def pasted(values: dict[str, Any], set_to: Assigned, *, stray: tuple[str, ...], notes: tuple[str, ...]) -> Pasted:
    """What a launch command says, once its flags are sorted; `auto` for the cache's dtype sets none.

    Args:
        values: (nested) fields of the configuration, and the model's `revision`.
        set_to: what the flags were sorted into.
        stray: words that belong to no flag.
        notes: what the engine makes of them that their writer may not expect.

    Raises:
        BadInput: a value is out of its field's domain.
    """
    fields = {name: value for name, value in values.items() if name != "revision"}
    if fields.get("kv_dtype") == "auto":
        del fields["kv_dtype"]
    configuration = configure({**fields, "flags": set_to.kept})
    return Pasted(
        configuration=configuration,
        not_understood=(*set_to.unknown, *stray, *strange(configuration.environment, configuration.engine)),
        notes=notes,
        revision=values.get("revision"),
        layout=frozenset(path.partition(".")[2] for path in fields if path.startswith("parallel.")),
    )


def spelled(flag: Flag, offered: Collection[str]) -> str:
    """The first of a flag's names that a version offers; of one that it lacks, the first."""
    return next((name for name in flag.names if name in offered), flag.names[0])


def write(table: tuple[Flag, ...], configuration: Configuration) -> tuple[str, ...]:
    """Arguments for every field of the configuration that differs from 'the engine's own default'.

    A flag goes by the first of its names that the configuration's version has; of one that it lacks, by the first.
    """
    words: list[str] = []
    offered = options(configuration.engine, configuration.version)
    for flag in table:
        name = spelled(flag, offered)
        value: Any = configuration
        for part in flag.field.split("."):
            value = None if value is None else getattr(value, part)
        if flag.kind in ("on", "off"):
            if value is (flag.kind == "on"):
                words.append(name)
        elif value is not None and not (flag.field.startswith("parallel.") and value == 1):
            back = {ours: theirs for theirs, ours in flag.aliases}
            words += [name, back.get(str(value), str(value))]
    return tuple(words)
