"""What every engine adapter provides. An adapter translates; it holds no formula and no policy."""

from typing import Protocol

import httpx
import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.ledger import Ledger, Pool
from draftmark.observation import Observation, Phase, ServerState


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's program can do; what a server can do, it says itself (`ServerState`)."""

    dummy_weights: tuple[str, ...] = ()
    """Flags that start it with made-up weights; none where it cannot."""
    bad_input_exit: int | None = None
    """Exit code by which it says that what it was given cannot be used; None where it has none."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start: arguments, and variables to add to its environment."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


class Pasted(msgspec.Struct, frozen=True, kw_only=True):
    """A launch command that a user wrote: what it configures, and the flags that were not understood."""

    configuration: Configuration
    not_understood: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the engine makes of it that its writer may not expect."""
    revision: str | None = None
    """Of the model's repository, where the command names one."""
    layout: frozenset[str] = frozenset()
    """Fields of `Parallel` that it sets, be it to their default."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine's Python must have before it can start."""

    modules: tuple[str, ...]
    """Names to import, the engine's own first."""
    distribution: str
    """Whose version is the engine's version."""
    install: str
    """The command that installs it."""


class LogReader(Protocol):
    """Reads one engine's log, line by line, in constant memory."""

    @property
    def phase(self) -> Phase:
        """Where the engine is by the lines read so far."""

    def feed(self, line: str, number: int) -> tuple[Observation, ...]:
        """Observations that line `number` (from 1) gives; their sources carry it.

        A line comes without its ending and without colour codes; what a progress bar wrote over itself is still in
        it, parted by carriage returns. Lines without interest may be left out, so numbers may jump.
        """


class Adapter(Protocol):
    """One engine."""

    @property
    def name(self) -> EngineName:
        """As users call it."""

    @property
    def tested(self) -> tuple[str, str]:
        """Oldest and newest version that the adapter was tested with."""

    @property
    def requirement(self) -> Requirement:
        """What must be installed where it runs."""

    @property
    def capabilities(self) -> Capabilities:
        """What its program can do."""

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:
        """The command that starts it."""

    def parse_command(self, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Pasted:
        """The configuration that a launch command asks for."""

    def reader(self, place: str) -> LogReader:
        """A reader for the log at `place` (a file name, shown in sources)."""

    def ledgers(self, observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
        """Observed memory, one ledger a rank, worst first; empty where the log does not say enough."""

    def pool(self, observations: tuple[Observation, ...]) -> Pool | None:
        """The pool that the log states; None where it does not."""

    def probe(self, client: httpx.Client, url: str) -> ServerState | None:
        """What the server at `url` says of itself; None where this is not that engine."""
