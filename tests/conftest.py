"""Marks and surroundings for the whole suite."""

import os
from pathlib import Path
from typing import Final

import pytest

# Triton is told to interpret before anything imports it: some libraries do so merely because it is installed. On the
# CPU the kernels run in that interpreter, and Triton's own functions must have been made for it as well. Tests on a GPU
# (`-m gpu`) are run with TRITON_INTERPRET=0.
os.environ.setdefault("TRITON_INTERPRET", "1")

_HERE: Final = Path(__file__).parent
_SLOW: Final = ("cli", "demo", "embedded", "kernels", "plugins", "selftest", "serve", "sweep", "test_accuracy.py")
"""Tests here start processes, compile kernels or speak over sockets; the rest are the unit tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow parts, so that the unit tests stay a matter of seconds."""
    for item in items:
        if item.path.relative_to(_HERE).parts[0] in _SLOW:
            item.add_marker(pytest.mark.slow)
