"""Quantities with their units, and how people write them.

Everything inside Draftmark is in bytes, seconds and tokens; scaling for people happens in `draftmark.report` alone.
"""

import re
from typing import Final, NewType

Bytes = NewType("Bytes", int)
Seconds = NewType("Seconds", float)
Tokens = NewType("Tokens", int)
Flops = NewType("Flops", float)
BytesPerSecond = NewType("BytesPerSecond", float)

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_SCALES: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": KIB, "mi": MIB, "gi": GIB}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?i?)", re.IGNORECASE)


def parse_tokens(text: str) -> Tokens:
    """`200k` is 200,000 tokens and `192Ki` 196,608, everywhere in Draftmark.

    Raises:
        ValueError: the text is not a whole number of tokens written that way.
    """
    match = _QUANTITY.fullmatch(text.strip().replace(",", "").replace("_", ""))
    scale = _SCALES.get(match.group(2).lower()) if match else None
    if match is None or scale is None:
        raise ValueError(f"{text!r} is not a number of tokens; write 200000, 200k or 192Ki")
    whole, _, decimals = match.group(1).partition(".")
    numerator = int(whole + decimals) * scale
    tokens, remainder = divmod(numerator, 10 ** len(decimals))
    if remainder:
        raise ValueError(f"{text!r} is not a whole number of tokens")
    return Tokens(tokens)
