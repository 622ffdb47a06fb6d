"""Flags that our vocabulary has no word for, read from `Configuration.flags`."""

import math

from draftmark.configuration import Configuration
from draftmark.engines.flags import BINARY, scaled
from draftmark.errors import BadInput


def has_flag(configuration: Configuration, name: str, value: str | None = None) -> bool:
    """Whether a flag is there, with that value where one is asked for."""
    flags = configuration.flags
    if value is None:
        return name in flags
    return any(flag == name and flags[at + 1] == value for at, flag in enumerate(flags[:-1]))


def text_flag(configuration: Configuration, *names: str) -> str | None:
    """What follows the last of a flag's `names`; None where none is there."""
    flags = configuration.flags
    return next((flags[at + 1] for at in reversed(range(len(flags) - 1)) if flags[at] in names), None)


def whole_flag(configuration: Configuration, *names: str) -> int | None:
    """A flag's positive whole number, as vLLM reads it (20G is 20 GiB); None where it is not there.

    Raises:
        BadInput: what follows it is not one.
    """
    text = text_flag(configuration, *names)
    if text is None:
        return None
    try:
        number = scaled(text, BINARY)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a whole number", place=names[0], remedy="check the command") from error
    if number < 1:
        raise BadInput(f"{text!r} is less than 1", place=names[0], remedy="give a positive number, or leave it out")
    return number


def number_flag(configuration: Configuration, name: str) -> float | None:
    """A flag's number; None where it is not there.

    Raises:
        BadInput: what follows it is not a number.
    """
    text = text_flag(configuration, name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a number", place=name, remedy="check the command") from error
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(f"{text!r} cannot be", place=name, remedy="give a positive number, or leave it out")
    return number
