"""Fields of a config.json, read with types; what is missing or of another kind is an error that names it."""

from typing import Any, Final

from draftmark.errors import BadInput, one_line

MOST_INTEGER: Final = 2**40
"""Largest number that is taken for meant: beyond any width, vocabulary or length that was published."""
MOST_LAYERS: Final = 1_000
_LAYERS: Final = ("num_hidden_layers", "n_layer")
_UNLIMITED: Final = ("sliding_window", "sliding_window_size", "group_size")
"""Fields in which configs write -1 or 0 for 'none'."""
TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")


class Fields:
    """One (possibly nested) object of a config.json, and where it was read."""

    def __init__(self, values: dict[str, Any], place: str) -> None:
        self.values = values
        self.place = place

    def integer(self, *names: str) -> int:
        """The first of `names` that is given: a size or a count, at least 1.

        Raises:
            BadInput: none of them is, or it cannot be.
        """
        value = self.maybe_integer(*names)
        if value is not None and value < 1:
            raise self._impossible(next(name for name in names if self.values.get(name) is not None), "less than 1")
        if value is None:
            alternatives = " or ".join(repr(name) for name in names)
            raise BadInput(
                f"the config lacks {alternatives}",
                place=self.place,
                remedy="pass the checkpoint's complete config.json",
            )
        return value

    def maybe_size(self, *names: str) -> int | None:
        """The same where a size may be left to the family's rule, but not be 0.

        Raises:
            BadInput: it cannot be.
        """
        return self.integer(*names) if any(self.values.get(name) is not None for name in names) else None

    def maybe_integer(self, *names: str) -> int | None:
        """The first of `names` that is given and not null, else None; 0 where there is none of a thing.

        Raises:
            BadInput: it is not a whole number, or one that cannot be.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise self._impossible(name, "not a whole number")
            if value < (-1 if name in _UNLIMITED else 0):
                raise self._impossible(name, "negative")
            if value > (MOST_LAYERS if name in _LAYERS else MOST_INTEGER):
                raise self._impossible(name, "beyond any model that was published")
            return value
        return None

    def share(self, name: str) -> float | None:
        """A positive number, or None where it is missing.

        Raises:
            BadInput: it is something else.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MOST_INTEGER:
            raise self._impossible(name, "not a positive number")
        return float(value)

    def refusal(self, cause: str) -> BadInput:
        """The error of a config that cannot be what was published."""
        return BadInput(cause, place=self.place, remedy="pass the config.json as it was published")

    def _impossible(self, name: str, why: str) -> BadInput:
        return self.refusal(f"{name!r} is {one_line(repr(self.values[name]), 60)}, {why}")

    def text(self, name: str) -> str | None:
        """A string, or None where it is missing.

        Raises:
            BadInput: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self._impossible(name, "not a text")
        return value

    def flag(self, name: str) -> bool:
        """True only where the field is given and true.

        Raises:
            BadInput: it is neither true nor false.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._impossible(name, "neither true nor false")
        return bool(value)

    def items(self, name: str) -> list[Any] | None:
        """A list, or None where it is missing.

        Raises:
            BadInput: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise self._impossible(name, "not a list")
        return value

    def per_layer(self, name: str, layers: int) -> list[Any] | None:
        """A list with one item for each of `layers` layers; None where the config has none.

        Raises:
            BadInput: the list is shorter than the model has layers.
        """
        items = self.items(name)
        if items is None:
            return None
        if len(items) < layers:
            raise self.refusal(f"{name!r} has {len(items)} items for {layers} layers")
        return items[:layers]

    def part(self, name: str) -> "Fields":
        """A nested object; empty where it is missing.

        Raises:
            BadInput: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._impossible(name, "not an object")
        return Fields(value or {}, f"{self.place} ({name})")

    def language(self) -> "Fields":
        """The part that describes the language model: multimodal checkpoints nest it, some twice."""
        for name in TEXT_PARTS:
            if self.values.get(name) is not None:
                return self.part(name).language()
        return self
