import re

import pytest

from draftmark.errors import BadInput
from draftmark.machine.catalogue import catalogue, find_gpu, parse_machine, plain
from draftmark.machine.detect import detect_gpus, host, host_memory
from draftmark.units import GIB


def test_every_row_is_plausible() -> None:
    devices = {device.name: device for device in catalogue().values()}
    assert len(devices) >= 35
    for device in devices.values():
        assert device.memory % 1 == 0
        assert 8 * GIB < device.memory < 300 * GIB
        assert device.bandwidth is not None
        assert 2e11 < device.bandwidth < 9e12
        assert re.search(r"https://", device.source)
        if device.board_memory is not None:
            assert 0.95 < device.memory / device.board_memory < 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h200", "NVIDIA H200"),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("mi300x", "AMD Instinct MI300X"),
    ],
)
def test_names_as_people_and_drivers_write_them(text: str, name: str) -> None:
    assert find_gpu(text).name == name


def test_no_two_gpus_share_a_name() -> None:
    import tomllib
    from importlib.resources import files

    rows = tomllib.loads(files("draftmark").joinpath("data/gpus.toml").read_text())["gpu"]
    names = [plain(name) for row in rows for name in {plain(row["name"]), *map(plain, row["aliases"])}]
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
