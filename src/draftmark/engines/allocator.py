"""Out of memory, in the words of PyTorch's allocators (CUDA, HIP, XPU, NPU and host), which all engines pass on."""

import re
from typing import Final

from draftmark.observation import Observation, Phase, Source
from draftmark.units import GIB, KIB, MIB, Bytes

_SCALES: Final = {"B": 1, "bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_AMOUNT: Final = r"(\d+(?:\.\d+)?) ?(bytes|[KMGT]iB)"
_QUANTITIES: Final = (
    ("tried", rf"[Tt]ried to allocate {_AMOUNT}"),
    ("capacity", rf"total capacity of {_AMOUNT}|; {_AMOUNT} total capacity"),
    ("free_at_failure", rf"of which {_AMOUNT} is free|; {_AMOUNT} free"),
    ("process", rf"this process has {_AMOUNT} memory in use"),
    ("allocated", rf"Of the allocated memory {_AMOUNT} is allocated by PyTorch|; {_AMOUNT} already allocated"),
    ("private_pools", rf"with {_AMOUNT} allocated in private pools"),
    ("reserved_unallocated", rf"and {_AMOUNT} is reserved by PyTorch but unallocated"),
    ("reserved", rf"; {_AMOUNT} reserved in total by PyTorch"),
)
_PATTERNS: Final = tuple((quantity, re.compile(pattern)) for quantity, pattern in _QUANTITIES)
_DEVICE: Final = re.compile(r"\. (?:GPU|XPU) (\d+) has a total capacity|\((?:GPU|NPU) (\d+);|OOM on device (\d+)")

_RAISED: Final = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|GPU) out of memory[.,;:!]? [Tt]ried to allocate|(?<!ray\.exceptions\.)\bOutOfMemoryError: "
    r"|DefaultCPUAllocator: (?:can't allocate memory|not enough memory)[.,;:!]? you tried to allocate"
    r"|memory allocation failed with OOM on device"
)
_WORDLESS: Final = re.compile(
    r"CUDA error: out of memory|Triton Error \[CUDA\]: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUresult error result=2\b|cudaErrorMemoryAllocation"
    r"|std::bad_alloc|^MemoryError\b|[^\w]MemoryError:?$|numpy.*ArrayMemoryError|Cannot allocate memory"
)
_TEXTS: Final = (
    "ut of memory", "OutOfMemory", "allocate memory", "enough memory", "OOM on device", "ALLOC_FAILED", "OUT_OF_MEMORY",
    "result=2", "ErrorMemoryAllocation", "bad_alloc", "MemoryError",
)  # fmt: skip
"""A line without any of these is none of the allocators'; looking for them is much faster than the expressions."""
_PROCESS: Final = re.compile(rf"\bProcess (\d+) has {_AMOUNT} memory in use")
_RAW: Final = re.compile(r"trying to allocate (\d+) bytes \(free: (\d+), total: (\d+)\)")


def amount(number: str, unit: str) -> Bytes:
    """`("1.40", "GiB")` in bytes."""
    return Bytes(round(float(number) * _SCALES[unit]))


def others(message: str) -> dict[int, Bytes]:
    """Memory of the device that other processes held by this message, by process id.

    PyTorch calls its own process by `this process` where NVML knows its id. In a container NVML knows another one, and
    the process that ran out is among those listed: it is the one with at least what PyTorch had allocated.
    """
    listed = {int(process): amount(number, unit) for process, number, unit in _PROCESS.findall(message)}
    if listed and "this process has" not in message:
        allocated = dict(_PATTERNS)["allocated"].search(message)
        own = amount(*(group for group in allocated.groups() if group)) if allocated is not None else Bytes(0)
        holders = [process for process, held in listed.items() if held >= own]
        if holders:
            del listed[max(holders, key=lambda process: listed[process])]
    return listed


def read(line: str, number: int, place: str, phase: Phase) -> tuple[Observation, ...]:
    """What a line says about an allocation that failed; empty where it is no such line.

    The first observation is `out_of_memory`, whose value is the message; `tried`, `free_at_failure`, `allocated`,
    `reserved_unallocated`, `private_pools`, `capacity` follow as far as the allocator names them.
    """
    if not any(text in line for text in _TEXTS):
        return ()
    raised = _RAISED.search(line)
    worded = raised or _WORDLESS.search(line)
    if worded is None:
        return ()
    source = Source(place=place, line=number, text=line[:2000])
    device = _DEVICE.search(line)
    rank = int(next(group for group in device.groups() if group)) if device else None

    def observed(quantity: str, value: Bytes) -> Observation:
        return Observation(quantity=quantity, value=value, unit="bytes", source=source, rank=rank, phase=phase)

    message = line[line.rfind("\r") + 1 :].strip()[:1000]
    first = Observation(quantity="out_of_memory", value=message, unit="text", source=source, rank=rank, phase=phase)
    amounts = [
        observed(quantity, amount(*(group for group in match.groups() if group)))
        for quantity, pattern in _PATTERNS
        if raised and (match := pattern.search(line))
    ]
    if raw := _RAW.search(line):
        names = ("tried", "free_at_failure", "capacity")
        amounts = [observed(name, Bytes(int(value))) for name, value in zip(names, raw.groups(), strict=True)]
    return (first, *amounts)
