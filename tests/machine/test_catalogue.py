import re
import tomllib
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from draftmark.errors import BadInput
from draftmark.machine.catalogue import find_gpu, parse_machine, plain, reported
from draftmark.machine.detect import detect_gpus, host, host_memory
from draftmark.units import MIB, Bytes

ROWS = tomllib.loads(files("draftmark").joinpath("data/gpus.toml").read_text(encoding="utf-8"))["gpu"]
NVIDIA = tuple(row for row in ROWS if row["kind"] == "cuda")


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_every_row_is_plausible(row: dict[str, Any]) -> None:
    assert 7 < row["memory_gib"] < 300
    assert 190 < row["bandwidth_gbs"] < 9000
    assert 10 < row.get("matrix_tflops", 100) < 3000
    assert re.match(r"https://", row["source"])
    assert row["memory_source"]
    if "board_mib" in row:
        assert 0.94 < row["memory_gib"] / (row["board_mib"] / 1024) < 1
    assert find_gpu(row["name"]).name == row["name"]


@pytest.mark.parametrize("row", NVIDIA, ids=[row["name"] for row in NVIDIA])
def test_what_its_driver_says_finds_each_gpu(row: dict[str, Any]) -> None:
    said = re.sub(r" (8|16)GB$|(?<=RTX 3080) 12GB$", "", row["name"])
    board = Bytes(row.get("board_mib", 124610) * MIB)
    found = reported(said, board)
    assert found is not None
    assert found.name == row["name"]


def test_a_driver_name_with_another_memory_is_not_known() -> None:
    assert reported("NVIDIA GeForce RTX 3050", Bytes(6144 * MIB)) is None
    assert reported("NVIDIA RTX A2000", Bytes(6138 * MIB)) is None
    assert reported("NVIDIA GeForce RTX 9999", Bytes(8192 * MIB)) is None


@pytest.mark.parametrize(
    ("said", "board_mib", "name", "memory_mib"),
    [
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "NVIDIA GeForce RTX 4060 Ti 8GB", 7803),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "NVIDIA GeForce RTX 4060 Ti 16GB", 15944),
        # With ECC: a sixteenth less, of which the driver keeps as much.
        ("NVIDIA RTX 5880 Ada Generation", 46068, "NVIDIA RTX 5880 Ada Generation", 45435),
        ("NVIDIA GeForce RTX 9999", 8192, "NVIDIA GeForce RTX 9999", 8192),
    ],
)
def test_detected_by_name_and_memory(
    said: str, board_mib: int, name: str, memory_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: said)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(total=board_mib * MIB))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", lambda handle: (8, 9))
    found = detect_gpus()
    assert found is not None
    assert found.device.name == name
    assert found.device.memory / MIB == pytest.approx(memory_mib, abs=1)


@pytest.mark.parametrize("text", ["rtx-4060-ti", "RTX 5060 Ti", "NVIDIA GeForce RTX 4060 Ti"])
def test_a_name_of_two_sizes_is_refused_and_names_both(text: str) -> None:
    with pytest.raises(BadInput, match="different memories") as caught:
        find_gpu(text)
    assert re.search("16GB.* or .* 8GB", caught.value.remedy)


def test_a_name_without_the_known_size_is_not_taken_for_it() -> None:
    with pytest.raises(BadInput, match="different memories") as caught:
        find_gpu("rtx-3050")
    assert "RTX 3050 8GB" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h200", "NVIDIA H200"),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("mi300x", "AMD Instinct MI300X"),
        ("rtx-4080-super", "NVIDIA GeForce RTX 4080 SUPER"),
        ("3080", "NVIDIA GeForce RTX 3080"),
        ("RTX 3080 12GB", "NVIDIA GeForce RTX 3080 12GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell"),
    ],
)
def test_names_as_people_and_drivers_write_them(text: str, name: str) -> None:
    assert find_gpu(text).name == name


def test_no_two_gpus_share_a_name() -> None:
    names = [plain(name) for row in ROWS for name in {plain(row["name"]), *map(plain, row["aliases"])}]
    assert len(names) == len(set(names))


def test_an_unknown_gpu_says_how_to_add_it() -> None:
    with pytest.raises(BadInput, match="unknown GPU 'h2000'") as caught:
        find_gpu("h2000")
    assert "gpus.toml" in caught.value.remedy
    assert "NVIDIA H200" in caught.value.remedy


def test_counts() -> None:
    assert parse_machine("h200:8").count == 8
    assert parse_machine("h200").count == 1
    for wrong in ("h200:0", "h200:x"):
        with pytest.raises(BadInput, match="not a number of GPUs"):
            parse_machine(wrong)


def test_this_host() -> None:
    memory = host_memory()
    assert 0 < memory.free <= memory.total == host().memory
    found = detect_gpus()
    assert found is None or found.count > 0


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5", "999999999999", " "])
def test_numbers_of_gpus_that_cannot_be(count: str) -> None:
    with pytest.raises(BadInput, match="GPUs"):
        parse_machine(f"h200:{count}")
