"""Fields of a config.json, read with types; what is missing or of another kind is an error that names it."""

from typing import Any

from draftmark.errors import BadInput

TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")


class Fields:
    """One (possibly nested) object of a config.json, and where it was read."""

    def __init__(self, values: dict[str, Any], place: str) -> None:
        self.values = values
        self.place = place

    def integer(self, *names: str) -> int:
        """The first of `names` that is given.

        Raises:
            BadInput: none of them is, or it is not a whole number.
        """
        value = self.maybe_integer(*names)
        if value is None:
            alternatives = " or ".join(repr(name) for name in names)
            raise BadInput(
                f"the config lacks {alternatives}",
                place=self.place,
                remedy="pass the checkpoint's complete config.json",
            )
        return value

    def maybe_integer(self, *names: str) -> int | None:
        """The first of `names` that is given and not null, else None.

        Raises:
            BadInput: it is not a whole number.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise BadInput(
                    f"{name!r} is {value!r}, not a whole number",
                    place=self.place,
                    remedy="pass the config.json as it was published",
                )
            return value
        return None

    def text(self, name: str) -> str | None:
        """A string, or None where it is missing or something else."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def flag(self, name: str) -> bool:
        """True only where the field is given and true."""
        return bool(self.values.get(name))

    def items(self, name: str) -> list[Any] | None:
        """A list, or None where it is missing or something else."""
        value = self.values.get(name)
        return value if isinstance(value, list) else None

    def per_layer(self, name: str, layers: int) -> list[Any] | None:
        """A list with one item for each of `layers` layers; None where the config has none.

        Raises:
            BadInput: the list is shorter than the model has layers.
        """
        items = self.items(name)
        if items is None:
            return None
        if len(items) < layers:
            raise BadInput(
                f"{name!r} has {len(items)} items for {layers} layers",
                place=self.place,
                remedy="pass the config.json as it was published",
            )
        return items[:layers]

    def part(self, name: str) -> "Fields":
        """A nested object; empty where it is missing."""
        value = self.values.get(name)
        return Fields(value if isinstance(value, dict) else {}, f"{self.place} ({name})")

    def language(self) -> "Fields":
        """The part that describes the language model: multimodal checkpoints nest it, some twice."""
        for name in TEXT_PARTS:
            value = self.values.get(name)
            if isinstance(value, dict):
                return Fields(value, f"{self.place} ({name})").language()
        return self
