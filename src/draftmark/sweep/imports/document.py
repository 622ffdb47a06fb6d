"""JSON as tools write it: some put NaN and Infinity into it, which JSON does not have."""

import json
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Tokens or requests."""
Chunks = Annotated[int, msgspec.Meta(ge=0, le=2**20)]
"""As many moments are made of it."""
Time = Annotated[float, msgspec.Meta(ge=0)]
"""Seconds, or a tool's own unit: never less than none."""


def decode(document: bytes, kind: type[T]) -> T:
    """The document as `kind`; NaN and Infinity are None.

    Raises:
        msgspec.DecodeError: it is no JSON, nested too deeply, or not of this kind (ValidationError).
    """
    try:
        return msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError:
        raise
    except RecursionError as problem:
        raise msgspec.DecodeError(str(problem)) from None
    except msgspec.DecodeError:
        if b"NaN" not in document and b"Infinity" not in document:
            raise
    try:
        loaded = json.loads(document, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as problem:
        raise msgspec.DecodeError(str(problem)) from None
    return msgspec.convert(loaded, kind)


def fields(document: bytes) -> frozenset[str]:
    """The names of an object's fields, or of the first object's in a list; none of other JSON.

    Raises:
        msgspec.DecodeError: it is no JSON, or nested too deeply.
    """
    found: Any = None
    for kind in (dict[str, msgspec.Raw], list[dict[str, msgspec.Raw]]):
        try:
            found = msgspec.json.decode(document, type=kind)
        except msgspec.ValidationError:
            continue
        except (msgspec.DecodeError, RecursionError):
            found = decode(document, Any)
        break
    first = found[0] if isinstance(found, list) and found else found
    return frozenset(first) if isinstance(first, dict) else frozenset()
