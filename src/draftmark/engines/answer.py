"""What a server answers, decoded: whatever it sends, this ends."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(body: bytes, kind: type[T]) -> T | None:
    """The JSON as `kind`; None where it is no such thing, or nested too deeply to be read."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return None
