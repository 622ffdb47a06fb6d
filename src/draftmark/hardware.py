"""The machines that models run on: what the datasheet says, and what was measured here."""

from typing import Literal

import msgspec

from draftmark.units import Bytes, BytesPerSecond, Flops


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or the host where an engine runs on CPU. None where the source does not say."""

    name: str
    kind: Literal["cuda", "rocm", "cpu"]
    memory: Bytes
    """Bytes as the driver reports them to a program, which is less than the name on the box."""
    bandwidth: BytesPerSecond | None
    """Peak memory bandwidth by the datasheet."""
    matrix_rate: Flops | None
    """Dense bf16 floating-point operations a second by the datasheet."""
    source: str
    architecture: str | None = None
    """Compute capability (`sm_90`) or gfx name."""
    nvlink: bool = False
    """Several of them in one host are joined by NVLink."""
    board_memory: Bytes | None = None
    """What nvidia-smi prints as memory.total; it counts the driver's own share, which programs are not given."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`count` equal devices in one host."""

    device: Device
    count: int


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Memory bandwidth that this machine reached: median of `samples` passes, with what was done to measure it."""

    bytes_per_second: BytesPerSecond
    low: BytesPerSecond
    high: BytesPerSecond
    samples: int
    method: str
