"""The compile check: everything fits every architecture, and a fault would be seen."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from draftmark.kernels import check
from draftmark.kernels.check import fault
from draftmark.kernels.mla_verify.compiled import Usage
from draftmark.kernels.mla_verify.tiles import BF16, FP8, SHARED_LIMIT


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """What the kernels' program prints; a process of its own, since here Triton interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    argv = [sys.executable, "-m", "draftmark.kernels", "check"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(900)
def test_everything_fits_every_architecture(rows: list[dict[str, Any]]) -> None:
    assert {row["architecture"] for row in rows} == {80, 86, 89, 90, 100, 120}
    assert [row for row in rows if row["fault"]] == []
    assert all(row["shared"] <= row["shared_limit"] for row in rows)
    assert all(row["stack"] == 0 for row in rows if row["architecture"] != 90)


def test_all_tiles_and_the_hopper_kernel_are_among_them(rows: list[dict[str, Any]]) -> None:
    tiles = sum(len(choices) for table in (BF16, FP8) for choices in table.values())
    assert sum(row["kernel"] == "attend" for row in rows) == tiles
    [hopper] = [row for row in rows if row["kernel"] == "hopper"]
    assert hopper["wgmma"] is True
    assert hopper["stack"] == 0


@pytest.mark.parametrize("reason", [ImportError("No module named 'cuda'"), RuntimeError("no libnvrtc.so.13\nno more")])
def test_without_nvrtc_the_rest_is_checked_and_one_row_says_what_is_missing(
    reason: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise reason

    monkeypatch.setattr("draftmark.kernels.mla_verify.hopper.compile_cubin", fail)
    said = check.hopper_row()["fault"]
    assert said.startswith(f"not compiled: {str(reason).splitlines()[0]} (")
    assert "pip install cuda-bindings nvidia-cuda-nvrtc" in said
    assert "\n" not in said


def test_faults_are_seen() -> None:
    fits: dict[str, Any] = {
        "registers": 255,
        "stack": 0,
        "spill_stores": 0,
        "shared": SHARED_LIMIT[120],
        "wgmma": False,
    }
    assert fault(120, Usage(**fits), SHARED_LIMIT[120]) is None
    assert "1024 more" in str(fault(120, Usage(**(fits | {"shared": 102_400})), SHARED_LIMIT[120]))
    assert "8 bytes of spills" in str(fault(120, Usage(**(fits | {"stack": 8})), SHARED_LIMIT[120]))
    assert fault(90, Usage(**(fits | {"stack": 8})), SHARED_LIMIT[90]) is None
