"""One move of a flag: what it sets, what it costs, and how much that weighs."""

from typing import Any

import msgspec

from draftmark.configuration import Configuration
from draftmark.finding import Change


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One move of one knob.

    `set` are fields of the configuration, nested ones with a dot; a flag beside them as (name, value).
    """

    name: str
    changes: tuple[Change, ...]
    set: tuple[tuple[str, Any], ...]
    cost: str
    weight: float

    def fields(self, configuration: Configuration) -> dict[str, Any]:
        """The top-level fields to replace."""
        found: dict[str, Any] = {}
        for path, value in self.set:
            head, _, tail = path.partition(".")
            if tail:
                inner = found.get(head, getattr(configuration, head))
                found[head] = msgspec.structs.replace(inner, **{tail: value})
            elif head == "flags":
                found[head] = with_flag(configuration.flags, *value)
            else:
                found[head] = value
        return found


def with_flag(flags: tuple[str, ...], name: str, value: str | None) -> tuple[str, ...]:
    """The flags with another value of one of them, which is added where it is not there; None for a switch."""
    words = (name,) if value is None else (name, value)
    at = flags.index(name) if name in flags else len(flags)
    return (*flags[:at], *words, *flags[at + len(words) :])
