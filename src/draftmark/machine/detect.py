"""What this machine has: NVIDIA GPUs by NVML, and the host for engines that run on its CPU."""

import platform
from pathlib import Path
from typing import Final

import msgspec

from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.machine.catalogue import catalogue, plain, reported
from draftmark.units import Bytes

_CGROUP: Final = Path("/sys/fs/cgroup")


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device as it is now."""

    total: Bytes
    free: Bytes


def detect_gpus() -> Machine | None:
    """The NVIDIA GPUs here; None where there are none.

    Raises:
        BadInput: they are not all of one kind, which one plan cannot describe.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        devices = [_device(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
    if not devices:
        return None
    if len({device.name for device in devices}) > 1:
        raise BadInput(
            f"different GPUs here: {', '.join(sorted({device.name for device in devices}))}",
            place="this machine",
            remedy="say which ones the engine gets with --gpu NAME:COUNT",
        )
    return Machine(device=devices[0], count=len(devices))


def _device(handle: object) -> Device:
    import pynvml

    name = str(pynvml.nvmlDeviceGetName(handle))
    board = Bytes(int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    known = reported(name, board)
    return Device(
        name=name if known is None or catalogue().get(plain(name)) == known else known.name,
        kind="cuda",
        memory=board if known is None else _given(known, board),
        bandwidth=None if known is None else known.bandwidth,
        matrix_rate=None if known is None else known.matrix_rate,
        source="NVML" if known is None else f"NVML; {known.source}",
        architecture=f"sm_{major}{minor}",
        nvlink=known is not None and known.nvlink,
        board_memory=board,
    )


def _given(known: Device, board: Bytes) -> Bytes:
    """What programs get of `board`: NVML counts the driver's own share too, which is known from the catalogue alone."""
    if known.board_memory is None:
        return known.memory
    return Bytes(board - (known.board_memory - known.memory))


def host() -> Device:
    """This machine's CPU and memory, as an engine on CPU uses them."""
    return Device(
        name=processor(),
        kind="cpu",
        memory=host_memory().total,
        bandwidth=None,
        matrix_rate=None,
        source="psutil",
        architecture=platform.machine(),
    )


def host_memory() -> Free:
    """Memory of this host, and what of it this process could take now: within its control group, without swapping."""
    import psutil

    memory = psutil.virtual_memory()
    available = int(memory.available)
    limit, used = _CGROUP / "memory.max", _CGROUP / "memory.current"
    if limit.is_file() and (most := limit.read_text().strip()) != "max":
        available = min(available, int(most) - int(used.read_text()))
    return Free(total=Bytes(memory.total), free=Bytes(available))


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
