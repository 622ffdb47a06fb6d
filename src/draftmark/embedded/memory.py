"""How much memory the engine may use, and uses. A CPU gets a limit of its own, so that it can run out as a GPU does."""

from pathlib import Path
from typing import Final, Protocol

import psutil
import torch

CGROUP: Final = Path("/sys/fs/cgroup")


class Memory(Protocol):
    """One device's memory, in bytes. Making one sets up torch's context, which is not counted as held."""

    capacity: int
    free_at_init: int

    def held(self) -> int:
        """What the engine holds for weights, pool and activations."""

    def free(self) -> int:
        """What it could still take."""

    def peak(self) -> int | None:
        """Most that was held since the last call; None where nobody counts."""


def _available() -> int:
    """Bytes that this process could take on the host, within its control group."""
    available = psutil.virtual_memory().available
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.is_file() and (most := limit.read_text().strip()) != "max":
        available = min(available, int(most) - int(used.read_text()))
    return available


def _data() -> int:
    """Bytes that the process asked for and may write to, touched or not: what `RLIMIT_DATA` counts."""
    info = psutil.Process().memory_info()
    return int(getattr(info, "data", info.rss))


class HostMemory:
    """A CPU's memory. With a limit, Linux refuses more than that beyond what interpreter and torch hold by now."""

    def __init__(self, limit: int | None) -> None:
        square = torch.ones(512, 512)
        torch.mm(square, square)  # starts torch's threads, whose stacks belong to the context
        self._base = _data()
        self._limit = limit
        self.capacity = limit or psutil.virtual_memory().total
        self.free_at_init = min(limit or _available(), _available())
        if limit:
            import resource  # only where there are such limits

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (self._base + limit, hard))

    def held(self) -> int:
        """What the process asked for since the context was set up."""
        return _data() - self._base

    def free(self) -> int:
        """What is left of the limit; without one, of the host."""
        return min(_available(), self._limit - self.held()) if self._limit else _available()

    def peak(self) -> int | None:
        """Nobody counts."""
        return None


class DeviceMemory:
    """A GPU's memory, through torch's allocator."""

    def __init__(self, limit: int | None) -> None:
        torch.ones(1, device="cuda")
        free, total = torch.cuda.mem_get_info()
        self._limit = limit
        self.capacity = min(limit or total, total)
        if limit:
            torch.cuda.set_per_process_memory_fraction(self.capacity / total)
        self.free_at_init = min(free, self.capacity - torch.cuda.memory_reserved()) if limit else free

    def held(self) -> int:
        """Bytes in tensors."""
        return torch.cuda.memory_allocated()

    def free(self) -> int:
        """What the driver would give, within the limit; memory that torch keeps for reuse is not in it."""
        free, _ = torch.cuda.mem_get_info()
        return min(free, self.capacity - torch.cuda.memory_reserved()) if self._limit else free

    def peak(self) -> int | None:
        """Most bytes in tensors since the last call."""
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak


def open_memory(device: str, limit: int | None) -> Memory:
    """The memory of `cpu` or `cuda`."""
    return DeviceMemory(limit) if device == "cuda" else HostMemory(limit)
