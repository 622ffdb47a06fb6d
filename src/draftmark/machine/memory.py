"""Memory of this machine's GPUs as it is now, by NVML, and over time."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from draftmark.units import Bytes, Seconds

_EVERY: Final = 1.0
_CGROUP: Final = Path("/sys/fs/cgroup")


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: what is taken of it, and the processes that hold any."""

    index: int
    name: str
    total: Bytes
    used: Bytes
    processes: tuple[int, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs at one time, seconds after the first look."""

    at: Seconds
    used: tuple[Bytes, ...]


def oom_kills(folder: Path = _CGROUP) -> int | None:
    """How often the kernel killed a process of this control group for want of memory; None where it is not counted."""
    try:
        lines = (folder / "memory.events").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    counts = dict(line.split(" ", 1) for line in lines)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


def gpus_now() -> tuple[Usage, ...]:
    """Every NVIDIA GPU here; empty where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_usage(index) for index in range(pynvml.nvmlDeviceGetCount()))
    finally:
        pynvml.nvmlShutdown()


def _usage(index: int) -> Usage:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        processes = tuple(int(one.pid) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except pynvml.NVMLError:  # not told inside containers
        processes = ()
    return Usage(
        index=index,
        name=str(pynvml.nvmlDeviceGetName(handle)),
        total=Bytes(int(memory.total)),
        used=Bytes(int(memory.used)),
        processes=processes,
    )


class MemoryLog:
    """Writes what the GPUs hold to a file, one JSON line a second, until it is closed; without a GPU it does nothing.

    Args:
        path: the file, appended to.
        look: how to look; NVML unless given.
        every: seconds between two looks.
    """

    def __init__(self, path: Path, look: Callable[[], tuple[Usage, ...]] = gpus_now, every: float = _EVERY) -> None:
        self._path, self._look, self._every = path, look, every
        self._peaks: dict[int, Bytes] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="draftmark-gpu-memory", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def peaks(self) -> dict[int, Bytes]:
        """The most that each GPU held so far, by its index."""
        return dict(self._peaks)

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while usages := self._look():
            for usage in usages:
                self._peaks[usage.index] = max(usage.used, self._peaks.get(usage.index, Bytes(0)))
            look = Look(at=Seconds(time.monotonic() - began), used=tuple(usage.used for usage in usages))
            try:
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(look) + b"\n")
            except OSError:  # a full disk must not end the engine's supervision; the peaks are still kept
                pass
            if self._over.wait(self._every):
                return
