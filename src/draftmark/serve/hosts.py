"""One engine over several hosts: the engine's own mechanism, one command a host, printed or started."""

import time
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines.adapter import Adapter, Command
from draftmark.engines.sglang import Sglang
from draftmark.engines.vllm import Vllm
from draftmark.errors import BadInput
from draftmark.serve import records
from draftmark.serve.launcher import REMOTE_PROCESS, Launcher, parse
from draftmark.serve.log import Tail, new_log
from draftmark.serve.place import default_logs
from draftmark.serve.process import EngineProcess, start
from draftmark.serve.records import Record
from draftmark.serve.server import GRACE, end


class Spread(Protocol):
    """An engine that can run over several hosts."""

    def host_commands(
        self, configuration: Configuration, *, python: str, port: int, hosts: tuple[str, ...]
    ) -> tuple[Command, ...]:
        """One command for each host, the one that answers requests first."""


def spread(engine: EngineName) -> Spread:
    """The engine's own way to run over several hosts.

    Raises:
        BadInput: it has none.
    """
    if engine == "sglang":
        return Sglang()
    if engine == "vllm":
        return Vllm()
    raise BadInput(f"the engine {engine} runs on one host", place="--hosts", remedy="use sglang or vllm")


class OnFirstHost:
    """An adapter whose command is the first host's; all else is the engine's own."""

    def __init__(self, adapter: Adapter, engine: Spread, hosts: tuple[str, ...]) -> None:
        self._engine, self._hosts = engine, hosts
        self.name, self.tested = adapter.name, adapter.tested
        self.requirement, self.capabilities = adapter.requirement, adapter.capabilities
        self.parse_command, self.reader = adapter.parse_command, adapter.reader
        self.ledgers, self.pool, self.probe = adapter.ledgers, adapter.pool, adapter.probe

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:  # noqa: ARG002
        """The first host's command; it listens on all addresses, because the others must reach it."""
        return self._engine.host_commands(configuration, python=python, port=port, hosts=self._hosts)[0]


class Others:
    """The engine's processes on every host but the first: started together, ended together.

    Args:
        commands: one for each host, the first one left out here.
        hosts: all of them.
        template: the prefix that reaches a host, with `{host}` in it, like `ssh {host}`.
        configuration: what they run; kept in their records, so that `draftmark stop` finds them.
        logs: folder for their logs.
    """

    def __init__(
        self,
        commands: tuple[Command, ...],
        hosts: tuple[str, ...],
        template: str,
        configuration: Configuration,
        logs: Path | None,
    ) -> None:
        self._started: list[tuple[Record, EngineProcess]] = []
        try:
            for host, command in list(zip(hosts, commands, strict=True))[1:]:
                launcher = launcher_for(template, host)
                self._started.append(_start(host, command, launcher, configuration, logs or default_logs()))
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, grace: float = GRACE) -> None:
        """End all of them."""
        while self._started:
            record, process = self._started.pop()
            end(_with_remote_process(record), process, grace)

    def leave(self) -> None:
        """Let all of them run on."""
        while self._started:
            record, process = self._started.pop()
            records.save(_with_remote_process(record))
            process.leave()


def launcher_for(template: str, host: str) -> Launcher:
    """The prefix that reaches one host.

    Raises:
        BadInput: the template names no host.
    """
    if "{host}" not in template:
        raise BadInput("no {host} in it", place="--launcher", remedy="write the prefix like 'ssh {host}'")
    return parse(template.replace("{host}", host))


def _start(
    host: str, command: Command, launcher: Launcher, configuration: Configuration, logs: Path
) -> tuple[Record, EngineProcess]:
    log = new_log(logs, f"{configuration.engine}-{host.replace('/', '_')}", 0)
    name = records.new_name(f"{configuration.engine}-{host}", 0)
    id_file = records.folder() / f"{name}.cid"
    id_file.parent.mkdir(parents=True, exist_ok=True)
    wrapped = launcher.wrap(command, None, id_file)
    process = start(wrapped.argv, wrapped.environment, log)
    record = Record(
        name=name,
        pid=process.pid,
        created=process.created,
        url=f"host:{host}",
        log=str(log),
        configuration=configuration,
        started=time.time(),
        launcher=launcher,
        id_file=str(id_file) if launcher.kind == "container" else None,
    )
    records.save(record)
    return record, process


def _with_remote_process(record: Record) -> Record:
    """The record with the process id that the far side of ssh printed."""
    if record.launcher.kind != "ssh":
        return record
    tail = Tail(Path(record.log))
    lines = tail.finish()
    tail.close()
    found = next((match for _, line in lines if (match := REMOTE_PROCESS.match(line))), None)
    return msgspec.structs.replace(record, remote_process=int(found.group(1))) if found is not None else record
