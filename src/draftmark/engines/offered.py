"""Which launch flags each version of an engine has, and what some can be set to: data/flags, read in the wheels."""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from draftmark.configuration import EngineName
from draftmark.engines.versions import parse_version

Takes = Literal["none", "switch", "maybe", "one", "many"]
"""Words that follow a flag; a `switch` has none, and a twin spelled --no-..."""
_READ: Final = re.compile(r"^# Read in the wheels (.*) by ", re.MULTILINE)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One name of a flag, in the versions from `since` to before `until` (empty: still there)."""

    name: str
    flag: str
    """The name that stands for all of the flag's names; a --no-... is a name of the flag that it negates."""
    takes: Takes
    since: str
    until: str

    def within(self, version: str) -> bool:
        """Whether a version that was read has it."""
        at = parse_version(version)
        return parse_version(self.since) <= at and (not self.until or at < parse_version(self.until))


@cache
def _rows(engine: EngineName) -> tuple[tuple[str, ...], tuple[Option, ...]]:
    """The versions that were read, oldest first, and every flag."""
    text = files("draftmark").joinpath(f"data/flags/{engine}.csv").read_text(encoding="utf-8")
    found = _READ.search(text)
    read = tuple(found[1].split()) if found else ()
    rows = csv.DictReader(text.splitlines()[1:])
    return read, tuple(msgspec.convert(row, Option) for row in rows)


def read_versions(engine: EngineName) -> tuple[str, ...]:
    """Versions whose flags were read, oldest first; none for an engine of our own."""
    return () if engine == "embedded" else _rows(engine)[0]


def beside(engine: EngineName, version: str | None) -> tuple[str, ...]:
    """The versions read that are nearest to `version`: itself, or the one before and the one after it.

    Without a version, and for a build without a number, it is the newest. What either of two neighbours has, a version
    between them is taken to have.
    """
    read = read_versions(engine)
    wanted = parse_version(version) if version is not None else ()
    if not any(wanted):
        return read[-1:]
    before = [one for one in read if parse_version(one) <= wanted]
    after = [one for one in read if parse_version(one) >= wanted]
    return tuple(dict.fromkeys((*before[-1:], *after[:1])))


def or_newest(engine: EngineName, version: str | None) -> str:
    """The version, or the newest that was read where there is none."""
    return version or "".join(read_versions(engine)[-1:])


@cache
def options(engine: EngineName, version: str | None) -> dict[str, Option]:
    """Every name of every flag of a version; of the newest that was read where none is given."""
    near = beside(engine, version)
    return {one.name: one for one in _rows(engine)[1] if any(one.within(read) for read in near)}


@cache
def ever(engine: EngineName) -> dict[str, Option]:
    """Every name that a flag had in any version that was read, as the last one had it."""
    return {one.name: one for one in _rows(engine)[1]}


@cache
def _choices(engine: EngineName) -> tuple[tuple[str, str, str, str], ...]:
    """Flag, value, first version with it, first version without it again."""
    text = files("draftmark").joinpath("data/flags/choices.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines()[1:])
    return tuple((row["flag"], row["value"], row["since"], row["until"]) for row in rows if row["engine"] == engine)


def choices(engine: EngineName, flag: str, version: str | None) -> tuple[str, ...]:
    """What a flag of a version can be set to; empty where the engine lists nothing."""
    near = beside(engine, version)
    found = []
    for of, value, since, until in _choices(engine):
        span = Option(name=value, flag=of, takes="one", since=since, until=until)
        if of == flag and any(span.within(read) for read in near):
            found.append(value)
    return tuple(found)


def since(engine: EngineName, flag: str, value: str) -> str | None:
    """The first version read in which a flag could be set to `value`; None where none could."""
    return next((first for of, one, first, _ in _choices(engine) if (of, one) == (flag, value)), None)
