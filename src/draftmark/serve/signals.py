"""Signals to Draftmark itself, turned into exceptions, so that whoever holds an engine decides what becomes of it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM: the same as Ctrl-C, but for the exit code of the command."""


class HungUp(KeyboardInterrupt):
    """The terminal is gone. An engine that took minutes to load is left running; `draftmark stop` finds it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, SIGTERM is like Ctrl-C and SIGHUP raises `HungUp`. For the main thread only."""
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt),
        signal.SIGHUP: signal.signal(signal.SIGHUP, _hang_up),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    raise HungUp
