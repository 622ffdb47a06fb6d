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


def ahead(version: Version, newest: Version) -> int:
    """How many versions it is ahead of the newest that was read, by the first number that differs: 0.36.1 of 0.33.0: 3.

    A build from source, whose number is 0.0.0 or says nothing, counts as one ahead.
    """
    if not any(version):
        return 1
    differing = next(((one, other) for one, other in zip(version, newest, strict=False) if one != other), None)
    if differing is None:
        return int(len(version) > len(newest) and any(version[len(newest) :]))
    return max(0, differing[0] - differing[1])
