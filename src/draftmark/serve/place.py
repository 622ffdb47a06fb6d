"""Where and how an engine's process is to run, settled and checked before it is started."""

import sys
from pathlib import Path

import msgspec
import platformdirs

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Requirement
from draftmark.errors import BadInput
from draftmark.serve import preflight
from draftmark.serve.launcher import Launcher


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say about it; None leaves it to Draftmark."""

    python: str | None = None
    """The Python that has the engine; the one running here, or `python3` behind a launcher."""
    launcher: Launcher = Launcher()
    host: str | None = None
    """Address to listen on; 127.0.0.1, or all inside a container."""
    port: int | None = None
    """TCP port; a free one."""
    logs: Path | None = None
    """Folder for the log; one in the user's state folder."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A place without holes. `version` is the engine's, where its Python is on this machine."""

    python: str
    launcher: Launcher
    host: str
    port: int
    logs: Path
    version: str | None

    @property
    def url(self) -> str:
        """Where this machine reaches the engine."""
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"


def default_logs() -> Path:
    """The folder for logs where the user names none."""
    return platformdirs.user_state_path("draftmark") / "logs"


def settle(configuration: Configuration, requirement: Requirement, place: Place) -> Settled:
    """Fill in what was left open, and find what is wrong before an engine takes minutes to find it.

    Raises:
        BadInput: no such model, engine not installed, port in use.
    """
    local = place.launcher.kind == "local"
    python = place.python or (sys.executable if local else "python3")
    if local:
        preflight.check_model(configuration.model)
        if configuration.speculative is not None and configuration.speculative.draft_model is not None:
            preflight.check_model(configuration.speculative.draft_model)
    host = place.host or place.launcher.bind
    if place.port is None:
        port = preflight.free_port()
    elif 0 < place.port < 1 << 16:
        port = place.port
        preflight.check_port(port, host if local else "127.0.0.1")
    else:
        raise BadInput(f"no TCP port {place.port}", place="--port", remedy="give 1 to 65535, or none")
    version = preflight.engine_version(configuration.engine, requirement, python) if local else None
    return Settled(
        python=python,
        launcher=place.launcher,
        host=host,
        port=port,
        logs=place.logs or default_logs(),
        version=version,
    )
