"""Versions of engines, compared; rules that changed carry the version since when."""

import re
from functools import cache

from draftmark.errors import BadInput

Version = tuple[int, ...]


@cache
def parse_version(text: str) -> Version:
    """`0.5.15.post1` is (0, 5, 15, 1); what follows a plus sign does not count.

    Raises:
        BadInput: it is not a version.
    """
    match = re.match(r"v?(\d+(?:\.\d+)*)(?:\.?post(\d+))?", text.split("+")[0].strip())
    if match is None:
        raise BadInput(f"{text!r} is not a version", place="--engine-version", remedy="write it like 0.5.15.post1")
    numbers = tuple(int(part) for part in match.group(1).split("."))
    return (*numbers, int(match.group(2))) if match.group(2) else numbers


def is_unread(text: str, newest: str) -> bool:
    """Whether a version is newer than the newest that was read, or a build from source, whose number says nothing."""
    version = parse_version(text)
    return version > parse_version(newest) or not any(version)
