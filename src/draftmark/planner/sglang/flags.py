"""SGLang flags that our vocabulary has no word for, read from `Configuration.flags`."""

from draftmark.configuration import Configuration
from draftmark.errors import BadInput


def has_flag(configuration: Configuration, name: str, value: str | None = None) -> bool:
    """Whether a flag is there, with that value where one is asked for."""
    flags = configuration.flags
    if value is None:
        return name in flags
    return any(flag == name and flags[at + 1] == value for at, flag in enumerate(flags[:-1]))


def number_flag(configuration: Configuration, name: str) -> float | None:
    """A flag's number; None where it is not there.

    Raises:
        BadInput: what follows it is not a number.
    """
    flags = configuration.flags
    text = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == name), None)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a number", place=name, remedy="check the command") from error
