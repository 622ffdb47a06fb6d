"""An engine that is ready, held by whoever started it."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx
import msgspec

from draftmark import __version__
from draftmark.configuration import Configuration
from draftmark.engines.adapter import Adapter
from draftmark.hardware import Device
from draftmark.ledger import Ledger, Pool
from draftmark.machine.memory import MemoryLog, oom_kills
from draftmark.observation import Observation, Phase, ServerState, Source
from draftmark.serve import launcher, records
from draftmark.serve.process import EngineProcess
from draftmark.serve.records import Record
from draftmark.serve.signals import HungUp
from draftmark.serve.watch import Watch
from draftmark.trial import Crashed, Environment, Outcome, OutOfMemory, Stopped, Trial
from draftmark.units import Seconds

GRACE: Final = 20.0
"""Seconds that an engine gets to end in order before it is killed."""
_POOL_WITHIN: Final = 15.0
"""Seconds after the first healthy answer by which an engine should have stated its pool."""
_DISK_LEFT: Final = 64 * 1024
"""Bytes; with less than that the log loses lines."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What was expected before the start; kept with the trial."""

    ledgers: tuple[Ledger, ...] = ()
    pool: Pool | None = None


class Server:
    """A running engine. As a context manager it ends the engine on leaving, whatever the reason for leaving is."""

    def __init__(
        self,
        *,
        record: Record,
        process: EngineProcess,
        watch: Watch,
        adapter: Adapter,
        prediction: Prediction,
        version: str | None = None,
        gpu: Device | None = None,
    ) -> None:
        self.record, self.process, self.adapter = record, process, adapter
        self._watch, self._prediction, self._version = watch, prediction, version
        self._gpu = gpu
        self._oom_kills = oom_kills()
        self._memory = MemoryLog(Path(f"{record.log}.memory.jsonl"))
        self._healthy_since: float | None = None
        self._disk_full = False
        self.state: ServerState | None = None
        self.outcome: Outcome | None = None
        self.detached = False
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, HungUp):
            self.detach()
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers, without a trailing slash."""
        return self.record.url

    @property
    def log_path(self) -> str:
        """The file with its whole log."""
        return self.record.log

    @property
    def configuration(self) -> Configuration:
        """As it was asked to run."""
        return self.record.configuration

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What it stated so far, in its log and by its endpoints."""
        stated = self.state.observations if self.state is not None else ()
        return (*self._of_gpus(), *stated, *self._watch.observations)

    def _of_gpus(self) -> Iterator[Observation]:
        """The size of this machine's GPUs, and the most that each held while the engine ran."""
        if self._gpu is not None:
            source = Source(place="this machine", text=f"{self._gpu.name}: {self._gpu.source}")
            yield Observation(quantity="capacity", value=self._gpu.memory, unit="bytes", source=source, phase="init")
        for index, used in self._memory.peaks.items():
            source = Source(place=f"{self.log_path}.memory.jsonl", text=f"GPU {index} by NVML, once a second")
            yield Observation(quantity="used_peak", value=used, unit="bytes", source=source)

    @property
    def pool(self) -> Pool | None:
        """Its pool, as it states it."""
        found = self.adapter.pool(self.observations)
        if found is None and self.state is not None and self.state.pool_tokens is not None:
            return Pool(tokens=self.state.pool_tokens, page=self.state.page)
        return found

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """Observed memory, one ledger a rank, worst first."""
        return self.adapter.ledgers(self.observations)

    @property
    def phase(self) -> Phase:
        """Where it is, by its log."""
        return self._watch.phase

    @property
    def in_phase(self) -> Seconds:
        """Seconds since it entered its phase."""
        return self._watch.in_phase

    def check(self) -> OutOfMemory | Crashed | None:
        """Read its log on; why it ended, if it did."""
        how = self.process.exit()
        if how is None:
            self._watch.step()
            self._note_remote_process()
            self._note_full_disk()
            return None
        self._watch.finish()
        died = self._explained(self._watch.ended(how))
        self.outcome = died
        records.forget(self.record)
        return died

    def _explained(self, died: OutOfMemory | Crashed) -> OutOfMemory | Crashed:
        """A death without a word is the OOM killer's where the control group counted one meanwhile."""
        kills = oom_kills()
        if isinstance(died, OutOfMemory) or kills is None or self._oom_kills is None or kills <= self._oom_kills:
            return died
        told = "the kernel's OOM killer ended a process of this control group meanwhile (memory.events)"
        return msgspec.structs.replace(died, message=f"{told}; last line: {died.message}")

    def ready(self, client: httpx.Client) -> bool:
        """Whether it is healthy and its pool is known, from its log or its endpoints; asked until it is true."""
        if not self.healthy(client):
            return False
        self._healthy_since = self._healthy_since or time.monotonic()
        try:
            self.state = self.adapter.probe(client, self.url)
        except httpx.HTTPError:
            return False
        if self.pool is not None:
            return True
        if time.monotonic() - self._healthy_since < _POOL_WITHIN:
            return False
        self._watch.note("it serves, but neither its log nor its endpoints say how large its pool is")
        return True

    def healthy(self, client: httpx.Client) -> bool:
        """Whether it answers its health endpoint."""
        try:
            return client.get(f"{self.url}/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def detach(self) -> None:
        """Leave it running; its record stays, so that `draftmark stop` finds it."""
        self.detached = True
        self._memory.close()
        self.process.leave()
        self._watch.close()

    def stop(self, grace: float | None = None) -> None:
        """End it, unless it was left; it gets `grace` seconds. A Ctrl-C meanwhile kills it at once."""
        if self.detached or self._ended:
            return
        self._ended = True
        self._memory.close()
        self._watch.close()
        end(self.record, self.process, GRACE if grace is None else grace)
        if not isinstance(self.outcome, OutOfMemory | Crashed):
            self.outcome = Stopped(after=Seconds(time.time() - self.record.started))

    def _note_remote_process(self) -> None:
        remote = self._watch.remote_process
        if self.record.launcher.kind == "ssh" and remote != self.record.remote_process:
            self.record = msgspec.structs.replace(self.record, remote_process=remote)
            records.save(self.record)

    def _note_full_disk(self) -> None:
        full = shutil.disk_usage(Path(self.log_path).parent).free < _DISK_LEFT
        if full and not self._disk_full:
            self._watch.note(f"the disk is full: {self.log_path} lacks what the engine says from here on")
        self._disk_full = full

    def _stated(self, quantity: str) -> str | None:
        """The last word of this kind in its log."""
        seen = (str(one.value) for one in reversed(self._watch.observations) if one.quantity == quantity)
        return next(seen, None)

    def trial(self, outcome: Outcome) -> Trial:
        """This start as it is kept: `outcome` is how it ended, or `Ready`."""
        state = self.state
        configuration = self.configuration
        return Trial(
            configuration=configuration,
            environment=Environment(
                draftmark=__version__,
                engine=configuration.engine,
                engine_version=(state.version if state else None) or self._version or self._stated("version"),
                model=configuration.model,
                device=state.device if state else None,
                device_count=configuration.parallel.gpus,
                flags=configuration.flags,
            ),
            outcome=outcome,
            log=self.record.log,
            predicted=self._prediction.ledgers,
            observed=self.ledgers,
            predicted_pool=self._prediction.pool,
            pool=self.pool,
            observations=self.observations,
        )


def end(record: Record, process: EngineProcess, grace: float) -> None:
    """Stop an engine wherever it runs, and forget it.

    Raises:
        EngineFailed: a container or a remote engine cannot be stopped; its record is kept.
    """
    words = record.launcher.words
    if record.launcher.kind == "container" and record.id_file is not None:
        container = records.container(record)
        if container is not None:
            launcher.stop_container(record.launcher.program, container, grace)
    elif record.launcher.kind == "ssh" and record.remote_process is not None:
        launcher.stop_remote(words, record.remote_process, grace)
    process.stop(grace)
    records.forget(record)
