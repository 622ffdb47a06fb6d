"""Prefixes that put an engine somewhere else: in a container, on another host, under another program.

What a prefix needs besides the command differs, because a process group cannot stop a container or a remote process:
`docker run` is told to write down the container's id and to publish the port, `ssh` to forward the port and to print
the remote process id, and both carry environment variables in their own way.
"""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Final, Literal

import msgspec

from draftmark.engines.adapter import Command
from draftmark.errors import BadInput, EngineFailed

Kind = Literal["local", "container", "ssh", "prefix"]
_CONTAINER_PROGRAMS: Final = {"docker", "podman", "nerdctl"}
_NETWORK_OPTIONS: Final = re.compile(r"--net(work)?(=|$)|--publish(=|$)|-p")
_DETACHED: Final = re.compile(r"-[it]*d[it]*|--detach(?:=true)?")
REMOTE_PROCESS: Final = re.compile(r"^draftmark: remote process (\d+)$")
"""The line by which the far side of ssh says which process the engine is; it leads its own process group there."""


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """The words before the engine's own command; none for a local start."""

    words: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """How its engine is reached and stopped."""
        if not self.words:
            return "local"
        if Path(self.words[0]).name == "ssh":
            return "ssh"
        return "container" if self._container is not None else "prefix"

    @property
    def _container(self) -> int | None:
        """Where the container's program stands, as in `docker run` and `sudo docker run`."""
        names = [Path(word).name for word in self.words]
        at = next((at for at, name in enumerate(names) if name in _CONTAINER_PROGRAMS), None)
        return at if at is not None and "run" in names[at:] else None

    @property
    def program(self) -> tuple[str, ...]:
        """The words up to the container's program: what stops a container too."""
        return self.words[: (self._container or 0) + 1]

    @property
    def bind(self) -> str:
        """Address that the engine must listen on, so that this machine reaches it as 127.0.0.1."""
        return "0.0.0.0" if self.kind == "container" else "127.0.0.1"

    def wrap(self, command: Command, port: int | None, id_file: Path) -> Command:
        """The command to run here: prefix, what it needs (reaching `port`, where one is given), the engine's own."""
        if self.kind == "container":
            return self._in_container(command, port, id_file)
        if self.kind == "ssh":
            return self._over_ssh(command, port)
        return Command(argv=(*self.words, *command.argv), environment=command.environment)

    def _in_container(self, command: Command, port: int | None, id_file: Path) -> Command:
        run = self.words.index("run", self._container or 0) + 1
        published = any(_NETWORK_OPTIONS.match(word) for word in self.words[run:])
        options = ["--cidfile", str(id_file)]
        options += [] if published or port is None else ["--publish", f"127.0.0.1:{port}:{port}"]
        for name, value in command.environment:
            options += ["--env", f"{name}={value}"]
        return Command(argv=(*self.words[:run], *options, *self.words[run:], *command.argv))

    def _over_ssh(self, command: Command, port: int | None) -> Command:
        program, *rest = self.words
        forward = ("-o", "ExitOnForwardFailure=yes", "-L", f"{port}:127.0.0.1:{port}") if port is not None else ()
        variables = [f"{name}={value}" for name, value in command.environment]
        remote = shlex.join(["env", *variables, *command.argv])
        return Command(argv=(program, *forward, *rest, f'echo "draftmark: remote process $$"; exec {remote}'))


def parse(text: str) -> Launcher:
    """A prefix as written on the command line.

    Raises:
        BadInput: quotes do not match, or a container is to run detached, where its engine cannot be followed.
    """
    try:
        launcher = Launcher(words=tuple(shlex.split(text)))
    except ValueError as error:
        raise BadInput(
            f"cannot be split into words ({error})", place="--launcher", remedy="check its quotes"
        ) from error
    if launcher.kind == "container" and any(_DETACHED.fullmatch(word) for word in launcher.words):
        cause = "a container that runs detached cannot be followed"
        raise BadInput(cause, place="--launcher", remedy="leave out -d: `draftmark serve --detach` leaves it running")
    return launcher


def stop_container(program: tuple[str, ...], container: str, grace: float) -> None:
    """Stop a container by its id.

    Raises:
        EngineFailed: the container's program says no.
    """
    _run((*program, "stop", "--time", str(round(grace)), container))


def stop_remote(ssh_words: tuple[str, ...], process: int, grace: float) -> None:
    """Stop the process group of `process` on the other side of ssh.

    Raises:
        EngineFailed: ssh fails.
    """
    tries = max(1, round(grace))
    wait = f"for i in $(seq {tries}); do kill -s 0 -- -{process} 2>/dev/null || exit 0; sleep 1; done"
    _run((*ssh_words, f"kill -s TERM -- -{process}; {wait}; kill -s KILL -- -{process}"))


def _run(argv: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EngineFailed(
            f"cannot be run ({error.strerror})", place=argv[0], remedy="stop the engine by hand"
        ) from error
    if done.returncode != 0:
        said = done.stderr.strip().rsplit("\n", 1)[-1] or f"exit code {done.returncode}"
        raise EngineFailed(said, place=shlex.join(argv[:3]), remedy="stop the engine by hand")
