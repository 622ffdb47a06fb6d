"""How much memory the engine may use, and uses, in bytes. A CPU gets a limit, so that it can run out as a GPU does.

`free_at_init` is before the weights are loaded and after torch's context, which is not counted as held.
"""

from pathlib import Path
from typing import Final

import psutil
import torch

CGROUP: Final = Path("/sys/fs/cgroup")


def _available() -> int:
    """What this process could take on the host, within its control group."""
    available = psutil.virtual_memory().available
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.is_file() and (most := limit.read_text().strip()) != "max":
        available = min(available, int(most) - int(used.read_text()))
    return available


def _data() -> int:
    """What the process asked for and may write to, touched or not: what `RLIMIT_DATA` counts."""
    info = psutil.Process().memory_info()
    return int(getattr(info, "data", info.rss))


class HostMemory:
    """A CPU's. With a limit, Linux refuses more than that beyond what interpreter and torch hold by now."""

    def __init__(self, limit: int | None) -> None:
        square = torch.ones(512, 512)
        torch.mm(square, square)  # starts torch's threads, whose stacks belong to the context
        self._base = _data()
        self.capacity = limit or psutil.virtual_memory().total
        self.free_at_init = min(_available(), self.capacity)
        if limit:
            import resource  # only where there are such limits

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (self._base + limit, hard))

    def held(self) -> int:
        """What the process asked for since the context was set up: weights, pool, activations."""
        return _data() - self._base

    def free(self) -> int:
        """What it could still take."""
        return min(_available(), self.capacity - self.held())

    def peak(self) -> int | None:
        """Nobody counts."""
        return None


class DeviceMemory:
    """A GPU's, through torch's allocator."""

    def __init__(self, limit: int | None) -> None:
        torch.ones(1, device="cuda")
        _, total = torch.cuda.mem_get_info()
        self.capacity = min(limit or total, total)
        if limit:
            torch.cuda.set_per_process_memory_fraction(self.capacity / total)
        self.free_at_init = self.free()

    def held(self) -> int:
        """What is in tensors."""
        return torch.cuda.memory_allocated()

    def free(self) -> int:
        """What the driver would give, within the limit; memory that torch keeps for reuse is not in it."""
        free, _ = torch.cuda.mem_get_info()
        return min(free, self.capacity - torch.cuda.memory_reserved())

    def peak(self) -> int | None:
        """Most that was in tensors since the last call."""
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak
