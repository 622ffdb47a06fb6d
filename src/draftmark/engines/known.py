"""The engines that Draftmark knows, by name."""

from importlib import import_module
from typing import Final

from draftmark.configuration import EngineName
from draftmark.engines.adapter import Adapter

NAMES: Final[tuple[EngineName, ...]] = ("embedded", "sglang", "vllm")


def adapter(name: EngineName) -> Adapter:
    """The adapter of one engine, imported when it is asked for."""
    made: Adapter = import_module(f"draftmark.engines.{name}").ADAPTER
    return made
