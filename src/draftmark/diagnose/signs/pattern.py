"""What the tables of signs are made of."""

from typing import Final

Pattern = tuple[str, tuple[str, ...], str]
"""A sign's name; texts of which a line must have one, because looking for a text is much faster; its expression."""
N: Final = r"-?[\d,]*\.?\d+"
