"""Where an engine hangs: the Python stacks of its processes."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil

from draftmark.serve.process import EngineProcess

_LONGEST: Final = 20_000
_DUMP_SECONDS: Final = 20
_ABORT_SECONDS: Final = 2.0


def stack_of(process: EngineProcess, log: Path) -> str | None:
    """Stacks of all its Python processes; None where they cannot be had.

    py-spy reads them from outside. Where it is missing or not allowed to, the engine is aborted instead: engines are
    started with Python's fault handler on, which then writes every thread's stack to the log.
    """
    return (_by_py_spy(process) or _by_abort(process, log) or "")[:_LONGEST] or None


def _by_py_spy(process: EngineProcess) -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return ""
    dumps = []
    for member in process.members():
        try:
            done = subprocess.run(
                (program, "dump", "--pid", str(member.pid)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DUMP_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            dumps.append(done.stdout.strip())
    return "\n\n".join(dumps)


def _by_abort(process: EngineProcess, log: Path) -> str:
    before = log.stat().st_size
    for member in process.members():
        try:
            member.send_signal(signal.SIGABRT)
        except psutil.NoSuchProcess:
            continue
    time.sleep(_ABORT_SECONDS)
    with log.open("rb") as file:
        file.seek(before)
        written = file.read(_LONGEST * 4).decode("utf-8", "replace")
    start = written.find("Fatal Python error")
    return written[start:].strip() if start >= 0 else ""
