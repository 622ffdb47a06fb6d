"""GPU memory over time: what is written, the peaks, and machines without a GPU."""

import time
from pathlib import Path

import msgspec

from draftmark.machine.memory import Look, MemoryLog, Usage, gpus_now, oom_kills
from draftmark.units import Bytes


def usage(index: int, used: int) -> Usage:
    return Usage(index=index, name="a GPU", total=Bytes(100), used=Bytes(used))


def test_peaks_and_every_look_are_kept(tmp_path: Path) -> None:
    looks = [(usage(0, 10), usage(1, 5)), (usage(0, 30), usage(1, 5)), (usage(0, 20), usage(1, 6))]
    remaining = iter(looks)
    path = tmp_path / "memory.jsonl"
    with MemoryLog(path, lambda: next(remaining, ()), every=0.01) as log:
        deadline = time.monotonic() + 10
        while len(path.read_bytes().splitlines() if path.exists() else ()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    written = [msgspec.json.decode(line, type=Look) for line in path.read_bytes().splitlines()]
    assert [look.used for look in written] == [(10, 5), (30, 5), (20, 6)]
    assert written[0].at <= written[1].at <= written[2].at
    assert log.peaks == {0: 30, 1: 6}


def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    with MemoryLog(tmp_path / "memory.jsonl", lambda: ()) as log:
        time.sleep(0.05)
    assert not (tmp_path / "memory.jsonl").exists()
    assert log.peaks == {}


def test_a_file_that_cannot_be_written_keeps_the_peaks(tmp_path: Path) -> None:
    remaining = iter([(usage(0, 7),)])
    with MemoryLog(tmp_path / "no" / "folder", lambda: next(remaining, ()), every=0.01) as log:
        time.sleep(0.1)
    assert log.peaks == {0: 7}


def test_kills_are_counted_where_the_kernel_does(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) is None
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    assert oom_kills(tmp_path) == 2


def test_looking_works_with_or_without_gpus() -> None:
    for gpu in gpus_now():
        assert 0 <= gpu.used <= gpu.total
