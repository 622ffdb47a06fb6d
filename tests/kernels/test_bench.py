"""What the bench makes of its check: the worst shape is kept, and red where any output is wrong."""

import itertools
import json
import math
import sys

import pytest
import torch

from draftmark.kernels import __main__ as program
from draftmark.kernels import bench
from draftmark.kernels.mla_verify.problems import Shape
from draftmark.kernels.timing import Ceilings, summary


@pytest.mark.parametrize(
    ("errors", "worst", "green"),
    [
        ((1e-3, 5e-3, 2e-3), 5e-3, True),
        ((1e-3, 2e-2, 1e-3), 2e-2, False),
        ((1e-3, math.nan, 1e-3), None, False),
        ((math.nan, 1e-3, 1e-3), None, False),
        ((1e-3, 1e-3, math.inf), None, False),
        ((), 0.0, False),
    ],
)
def test_one_wrong_shape_makes_it_red_wherever_it_stands(
    errors: tuple[float, ...], worst: float | None, green: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(errors)
    monkeypatch.setattr(bench, "random_problem", lambda *_: None)
    monkeypatch.setattr(bench, "run_poisoned", lambda *_: torch.zeros(2))
    monkeypatch.setattr(bench, "specification", lambda _: torch.zeros(2))
    monkeypatch.setattr(bench, "relative_error", lambda *_: next(told))
    checked = bench.check(len(errors), 1, None)
    assert (checked.worst, checked.green, checked.repeatable) == (worst, green, True)


def test_outputs_that_differ_from_run_to_run_make_it_red(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = (torch.full((2,), float(number)) for number in itertools.count())
    monkeypatch.setattr(bench, "random_problem", lambda *_: None)
    monkeypatch.setattr(bench, "run_poisoned", lambda *_: next(outputs))
    monkeypatch.setattr(bench, "specification", lambda _: torch.zeros(2))
    monkeypatch.setattr(bench, "relative_error", lambda *_: 0.0)
    assert not bench.check(2, 1, None).green


def test_nothing_is_timed_after_a_red_check(monkeypatch: pytest.MonkeyPatch) -> None:
    red = bench.Checked(shapes=3, worst=None, worst_shape="s", repeatable=True)
    monkeypatch.setattr(bench, "check", lambda *_: red)
    [row] = bench.bench(3, 1, None, others=True)
    assert (row["row"], row["green"], row["worst"]) == ("check", False, None)
    json.dumps(row, allow_nan=False)


def test_rows_are_alone_on_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def noisy() -> list[dict[str, object]]:
        sys.stdout.write("a package says hello\n")
        return [{"fault": None}]

    monkeypatch.setattr("draftmark.kernels.check.check", noisy)
    monkeypatch.setattr(program, "ROWS", sys.stdout)
    monkeypatch.setattr(sys, "argv", ["kernels", "check"])
    assert program.main() == 0
    shown = capsys.readouterr()
    assert shown.out == '{"fault": null}\n'
    assert "hello" in shown.err


def test_a_time_is_the_median_with_the_tenths_beside_it() -> None:
    found = summary([float(number) for number in (9, 1, 5, 3, 7, 2, 8, 4, 6, 100)])
    assert (found.median, found.low, found.high) == (5.5, 2.0, 9.0)


def test_the_floor_is_the_larger_of_reading_and_multiplying() -> None:
    ceilings = Ceilings(bandwidth=1e12, matrix_rate=1e14)
    few = Shape(lengths=(1000,), nodes=(1,), heads=8)
    assert bench.floor_seconds(few, ceilings) == pytest.approx(1000 * 576 * 2 / 1e12)
    many = Shape(lengths=(1000, 10), nodes=(16, 16), heads=8)
    assert bench.floor_seconds(many, ceilings) == pytest.approx(1010 * 128 * 2 * (576 + 512) / 1e14)
