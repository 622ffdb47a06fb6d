"""`draftmark kernel`: what the kernels' program says reaches the user, as a table, JSON or one line of error."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from draftmark.cli import kernel
from draftmark.errors import BadInput, CheckFailed

FITS = {
    "kernel": "attend",
    "architecture": 120,
    "cache": "bf16",
    "tile": "32x32",
    "registers": 180,
    "stack": 0,
    "shared": 75_776,
    "shared_limit": 101_376,
    "wgmma": False,
    "fault": None,
}
CHECK = {
    "row": "check",
    "shapes": 3,
    "worst": 2e-3,
    "worst_shape": "s",
    "repeatable": True,
    "green": True,
    "tolerance": 1e-2,
}
TIME = {
    "row": "time",
    "kernel": "draftmark",
    "requests": 1,
    "tokens": 131_072,
    "nodes": 16,
    "seconds": 8.02e-5,
    "low": 8e-5,
    "high": 8.1e-5,
    "bytes_per_second": 1.883e12,
    "floor_seconds": 4.87e-5,
    "of_floor": 0.607,
}


def rows(monkeypatch: pytest.MonkeyPatch, *given: dict[str, Any]) -> None:
    def program(*_: str) -> Iterator[dict[str, Any]]:
        yield from given

    monkeypatch.setattr(kernel, "_rows", program)


def test_check_shows_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows(monkeypatch, FITS)
    kernel.check()
    shown = capsys.readouterr().out
    assert "sm_120" in shown
    assert "75776" in shown
    assert "fits" in shown


def test_a_fault_is_an_error_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    rows(monkeypatch, FITS, FITS | {"fault": "8 bytes of spills"})
    with pytest.raises(
        CheckFailed, match=r"attend 32x32 on sm_120: 1 of 2 configurations have a fault; 8 bytes of spills"
    ):
        kernel.check()


def test_bench_shows_times_beside_the_floor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ceilings = {"row": "ceilings", "device": "GPU", "bandwidth": 4.2e12, "matrix_rate": 7.5e14}
    left_out = {"row": "left out", "kernel": "FlashMLA", "why": "not installed"}
    rows(monkeypatch, CHECK, ceilings, TIME, left_out, left_out)
    kernel.bench()
    shown = capsys.readouterr().out
    assert "3 random shapes: right" in shown
    assert "131,072" in shown
    assert "61%" in shown
    assert shown.count("left out: FlashMLA: not installed") == 1


@pytest.mark.parametrize(
    ("red", "said"),
    [
        ({"worst": 0.5}, "relative error 5.00e-01 where 1e-02 is allowed"),
        ({"worst": 0.5, "repeatable": False}, "relative error 5.00e-01 where 1e-02 is allowed"),
        ({"worst": None, "repeatable": False}, "an output is not a number"),
        ({"repeatable": False}, "results differ from run to run"),
    ],
)
def test_a_red_check_refuses_the_speed(
    red: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows(monkeypatch, CHECK | {"green": False} | red)
    with pytest.raises(CheckFailed, match=rf"^s: {said}$"):
        kernel.bench()
    assert "WRONG, so no speed is shown" in capsys.readouterr().out


def test_json_is_the_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows(monkeypatch, FITS)
    kernel.check(json=True)
    assert json.loads(capsys.readouterr().out) == [FITS]


def test_without_a_gpu_bench_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BadInput, match=r"^no CUDA GPU here: benchmarks need one; `draftmark kernel check` does not$"):
        kernel.bench()


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_NEEDED", ("torch", "no_such_package"))
    with pytest.raises(BadInput, match=r"no_such_package not installed; pip install 'draftmark\[kernels\]'"):
        kernel.check()
