"""An engine's processes: a session of their own, which outlives Draftmark and is ended as a whole."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from draftmark.errors import BadInput

_POLL: Final = 0.1
_BOUND: Final = Path(__file__).with_name("bound.py")


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended; both are None where it was not ours to wait for."""

    code: int | None = None
    signal: str | None = None


class EngineProcess:
    """The leader of an engine's session, started here or found again by `pid` and `created` (Unix time)."""

    def __init__(self, pid: int, created: float, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.created = pid, created
        self._child = child

    def exit(self) -> Exit | None:
        """How it ended, or None while it runs."""
        if self._child is None:
            return None if is_running(self.pid, self.created) else Exit()
        code = self._child.poll()
        if code is None:
            return None
        return Exit(signal=signal.Signals(-code).name) if code < 0 else Exit(code=code)

    def members(self) -> list[psutil.Process]:
        """Every living process of the session and every descendant of the leader."""
        found = {process.pid: process for process in psutil.process_iter() if _session(process.pid) == self.pid}
        if is_running(self.pid, self.created):
            found |= {process.pid: process for process in _descendants(self.pid)}
        return [process for process in found.values() if _alive(process)]

    def stop(self, grace: float) -> None:
        """Ask it to end, and kill what still lives after `grace` seconds; a Ctrl-C meanwhile kills at once."""
        try:
            _send(self.members(), signal.SIGTERM)
            self._gone_within(grace)
        finally:
            self.kill()

    def leave(self) -> None:
        """Let it run on by itself, as a process like any other."""
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # else Popen warns of a child left running, which is what was asked for
        self._child = None

    def kill(self) -> None:
        """End every process of it now."""
        for _ in range(100):
            members = self.members()
            if not members:
                break
            _send(members, signal.SIGKILL)
            self._gone_within(_POLL)
        if self._child is not None:
            self._child.wait()

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() >= deadline:
                return False
            if self._child is not None:
                self._child.poll()
            time.sleep(_POLL)
        return True


def start(
    argv: tuple[str, ...], environment: tuple[tuple[str, str], ...], log: Path, *, bound: bool = False
) -> EngineProcess:
    """Start a command in a session of its own, standard output and error in `log`.

    With `bound` it is killed when this process ends, however it ends (on Linux; only its first process).

    Raises:
        BadInput: the program cannot be run.
    """
    words = (sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *argv) if bound else argv
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **dict(environment)},
                start_new_session=True,
            )
        except OSError as error:
            raise BadInput(
                f"cannot be run ({error.strerror})", place=argv[0], remedy="give a program that exists"
            ) from error
    return EngineProcess(child.pid, psutil.Process(child.pid).create_time(), child)


def is_running(pid: int, created: float) -> bool:
    """Whether that very process (not a later one with its number) still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - created) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
