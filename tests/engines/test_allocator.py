"""Out of memory in the words of PyTorch's allocators, as they stand in public logs."""

import pytest

from draftmark.engines.allocator import read
from draftmark.units import GIB, MIB


def numbers(line: str) -> dict[str, float | int | str]:
    return {seen.quantity: seen.value for seen in read(line, 7, "server.log", "prefill")}


def test_the_present_cuda_message() -> None:
    seen = numbers(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of 79.19 "
        "GiB of which 552.50 MiB is free. Including non-PyTorch memory, this process has 78.64 GiB memory in use. Of "
        "the allocated memory 74.91 GiB is allocated by PyTorch, with 626.00 MiB allocated in private pools (e.g., "
        "CUDA Graphs), and 1.78 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
        "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    message = seen.pop("out_of_memory")
    assert str(message).startswith("torch.OutOfMemoryError: CUDA out of memory.")
    assert seen == {
        "tried": 786 * MIB,
        "capacity": round(79.19 * GIB),
        "free_at_failure": round(552.5 * MIB),
        "process": round(78.64 * GIB),
        "allocated": round(74.91 * GIB),
        "private_pools": 626 * MIB,
        "reserved_unallocated": round(1.78 * GIB),
    }


def test_the_older_message_with_its_device() -> None:
    line = (
        "RuntimeError: NPU out of memory. Tried to allocate 226.00 MiB (NPU 2; 60.96 GiB total capacity; 58.13 GiB "
        "already allocated; 58.13 GiB current active; 97.16 MiB free; 58.42 GiB reserved in total by PyTorch)"
    )
    seen = numbers(line)
    assert seen["tried"] == 226 * MIB
    assert seen["free_at_failure"] == round(97.16 * MIB)
    assert seen["allocated"] == round(58.13 * GIB)
    assert seen["reserved"] == round(58.42 * GIB)
    assert {one.rank for one in read(line, 1, "x", "init")} == {2}


def test_the_hosts_allocator() -> None:
    seen = numbers(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"
    )
    assert seen["tried"] == 2 * GIB


def test_bytes_as_plain_numbers() -> None:
    seen = numbers(
        "memory allocation failed with OOM on device 5 while trying to allocate 671088640 bytes (free: 513736704, "
        "total: 85095874560)"
    )
    assert (seen["tried"], seen["free_at_failure"], seen["capacity"]) == (671088640, 513736704, 85095874560)


@pytest.mark.parametrize(
    "line",
    [
        "torch.AcceleratorError: CUDA error: out of memory",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        'Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")',
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_messages_without_numbers(line: str) -> None:
    (seen,) = read(line, 1, "x", "graphs")
    assert (seen.quantity, seen.value, seen.phase) == ("out_of_memory", line, "graphs")


@pytest.mark.parametrize(
    "line",
    [
        "Decode out of memory happened. Retracting requests.",
        "Out of memory: Killed process (cicc) total-vm:10886376kB",
        "INFO If you run out of memory, lower --mem-fraction-static",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ],
)
def test_what_only_sounds_like_it(line: str) -> None:
    assert read(line, 1, "x", "init") == ()
