"""Memory bandwidth that this machine reaches, measured here and now."""

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import psutil
from numpy.typing import NDArray

from draftmark.hardware import Bandwidth
from draftmark.units import MIB, BytesPerSecond

_ARRAY: Final = 64 * MIB
"""Bytes of each array that a thread reads: far beyond a core's share of the last-level cache."""
_PASSES: Final = 9


def measure_host_bandwidth() -> Bandwidth:
    """Bytes a second that all cores together read from memory: one dot product of two large arrays on each.

    A dot product reads and writes nothing back, as attention reads its cache. Takes about a second and
    128 MiB a core (fewer cores where a quarter of the available memory would not hold that).
    """
    room = psutil.virtual_memory().available // (8 * _ARRAY)
    threads = max(1, min(_cores(), room))
    length = _ARRAY // 4
    pairs = [(np.ones(length, np.float32), np.full(length, 0.5, np.float32)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        rates = [_one_pass(pool, pairs) for _ in range(_PASSES + 1)][1:]
    return Bandwidth(
        bytes_per_second=BytesPerSecond(statistics.median(rates)),
        low=BytesPerSecond(min(rates)),
        high=BytesPerSecond(max(rates)),
        samples=_PASSES,
        method=f"dot products of {2 * _ARRAY // MIB} MiB on each of {threads} threads, bytes read",
    )


def _one_pass(pool: ThreadPoolExecutor, pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> float:
    """Bytes a second over one pass of all threads; each repeats, so that starting threads costs little of it."""
    repeats = 3
    began = time.perf_counter()
    list(pool.map(lambda pair: [float(np.dot(*pair)) for _ in range(repeats)], pairs))
    return repeats * len(pairs) * 2 * _ARRAY / (time.perf_counter() - began)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
