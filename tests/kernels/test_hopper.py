"""The Hopper kernel's host side, as far as it goes without a GPU: what it refuses, packs and launches."""

import ctypes
import dataclasses
import re
from importlib import resources
from typing import Any

import pytest
import torch

from draftmark.kernels.mla_verify import hopper
from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.problems import Shape, random_problem

driver = pytest.importorskip("cuda.bindings.driver")

GOOD = random_problem(Shape(lengths=(70, 9), nodes=(3, 16), heads=8, mask="full"), seed=1)


def test_the_arguments_are_the_struct_of_the_source() -> None:
    source = resources.files("draftmark.kernels.mla_verify").joinpath("hopper_line.cu").read_text()
    body = re.sub(r"//.*", "", source.partition("struct Arguments {")[2].partition("};")[0])
    declared = [
        name.strip(" *")
        for line in body.split(";")
        for name in re.sub(r"^\s*(const )?(unsigned char|char|void|i64|float|int)", "", line.strip()).split(",")
        if name.strip(" *")
    ]
    assert declared == [name for name, *_ in hopper.Arguments._fields_]


def test_constants_agree_with_the_source() -> None:
    source = hopper.source()
    assert f"ROWS = {hopper.ROWS}, TOKENS = {hopper.TOKENS}," in source
    assert f"{hopper.MERGE_GROUPS} * {hopper.MOST_TEAMS}" in source
    assert "CONSUMERS = 256, LOADER_WARPS = 4" in source
    assert hopper.THREADS == 256 + 4 * 32


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({name: getattr(GOOD, name).half() for name in ("query", "draft_keys", "cache")}, "bfloat16 only"),
        ({"key_scale": 2.0}, "no scale"),
        ({"cache": GOOD.cache.repeat(2, 1)[: GOOD.cache.shape[0] // 2 * 2], "page_size": 2,
          "cache_lengths": torch.tensor([70, 9])}, "page size 1 only"),
        ({"draft_keys": torch.zeros(21, 577, dtype=torch.bfloat16)[:, 1:]}, "multiples of 16 bytes"),
    ],
)  # fmt: skip
def test_what_it_refuses(changes: dict[str, Any], said: str) -> None:
    assert hopper.refusal(GOOD) is None
    assert said in str(hopper.refusal(dataclasses.replace(GOOD, **changes)))


@pytest.mark.parametrize(
    ("teams", "requests", "groups"), [(132, 1, 16), (66, 1, 16), (66, 4, 8), (66, 16, 2), (66, 64, 1), (1, 64, 1)]
)
def test_groups_follow_the_parts_a_request_has(teams: int, requests: int, groups: int) -> None:
    assert hopper.merge_groups(teams, requests) == groups


def launches(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would be launched, with the arguments as they lie behind the pointer."""
    seen: list[dict[str, Any]] = []

    def record(config: Any, function: str, parameters: int, extra: int) -> tuple[int]:
        first = ctypes.c_void_p.from_address(parameters).value
        assert first is not None
        assert extra == 0
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        packed = hopper.Arguments.from_buffer_copy(hopper.Arguments.from_address(first))
        seen.append(
            {
                "function": function,
                "grid": grid,
                "threads": config.blockDimX,
                "early": config.numAttrs,
                "packed": packed,
            }
        )
        return (0,)

    stream = type("Stream", (), {"cuda_stream": 0})
    properties = type("Properties", (), {"multi_processor_count": 132})
    monkeypatch.setattr(driver, "cuLaunchKernelEx", record)
    monkeypatch.setattr(hopper, "functions", lambda _: ("attend", "merge"))
    monkeypatch.setattr("torch.cuda.current_stream", lambda *_: stream)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    out = torch.empty(*problem.query.shape[:2], 512, dtype=torch.bfloat16)
    hopper.launch(problem, out, lambda numbers, rows, _: (torch.empty(numbers), torch.empty(rows)))
    return seen


def test_two_launches_with_a_grid_that_lengths_do_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    attend, merge = launches(GOOD, monkeypatch)
    assert (attend["function"], attend["grid"], attend["threads"], attend["early"]) == ("attend", (2, 66, 1), 384, 0)
    groups = hopper.merge_groups(66, 2)
    assert merge["grid"] == (128 // (16 // groups), 2, 4)
    assert (merge["threads"], merge["early"]) == (256, 1)
    packed = attend["packed"]
    assert packed.query == GOOD.query.data_ptr()
    assert packed.cache_stride == 576 * 2
    assert (packed.requests, packed.heads, packed.teams, packed.blocks, packed.mask) == (2, 8, 66, 2, 2)
    assert (packed.wide_query_indptr, packed.wide_cache_indptr, packed.wide_cache_indices) == (1, 0, 1)
    assert packed.scale == pytest.approx(GOOD.scale * 1.4426950408889634)
    assert (packed.cap, packed.cap_inner) == (0, 0)
    longer = random_problem(Shape(lengths=(900, 3), nodes=(3, 16), heads=8, mask="full"), seed=1)
    assert [launch["grid"] for launch in launches(longer, monkeypatch)] == [attend["grid"], merge["grid"]]
