"""Wrong arguments raise a ValueError that names them, says what they were and what they must be."""

import dataclasses
import re
from typing import Any

import pytest
import torch

from draftmark.kernels.mla_verify import launch
from draftmark.kernels.mla_verify.launch import Workspace, mla_verify
from draftmark.kernels.mla_verify.problem import OPTIONAL_TENSORS, TENSORS, Problem, check_ranges
from draftmark.kernels.mla_verify.problems import Shape, random_problem
from draftmark.kernels.mla_verify.specification import specification
from draftmark.kernels.mla_verify.tiles import choose

GOOD = random_problem(Shape(lengths=(9, 4), nodes=(3, 2), heads=2, latent=32, rope=16), seed=1)

WRONG: tuple[tuple[str, Any], ...] = (
    *((name, None) for name in TENSORS),
    *((name, [0, 1]) for name in (*TENSORS, *OPTIONAL_TENSORS)),
    *((name, torch.tensor(1.0)) for name in ("scale", "logit_cap", "key_scale", "value_scale", "max_nodes", "latent")),
    *((name, "1") for name in ("scale", "max_nodes", "page_size")),
    ("max_nodes", True),
    ("query", GOOD.query[0]),
    ("query", GOOD.query.float()),
    ("query", GOOD.query.transpose(0, 1)),
    ("query", torch.zeros(7, 129, 48, dtype=torch.bfloat16)),
    ("draft_keys", GOOD.draft_keys[:-1]),
    ("draft_keys", GOOD.draft_keys.half()),
    ("draft_keys", GOOD.draft_keys.to("meta")),
    ("cache", GOOD.cache[:, :-1]),
    ("cache", GOOD.cache.float()),
    ("cache", GOOD.cache.half()),
    ("query", torch.zeros(7, 0, 48, dtype=torch.bfloat16)),
    ("query", torch.zeros(7, 2, 49, dtype=torch.bfloat16)),
    ("draft_keys", GOOD.draft_keys.T.contiguous().T),
    ("cache", GOOD.cache.T.contiguous().T),
    ("cache", GOOD.cache.to("meta")),
    ("query_indptr", GOOD.query_indptr.float()),
    ("query_indptr", GOOD.query_indptr[:, None]),
    ("query_indptr", GOOD.query_indptr.repeat_interleave(2)[::2]),
    ("query_indptr", GOOD.query_indptr.to("meta")),
    ("query_indptr", GOOD.query_indptr[:1]),
    ("cache_indptr", GOOD.cache_indptr[:-1]),
    ("cache_indices", GOOD.cache_indices[None]),
    ("cache_indices", GOOD.cache_indices.to("meta")),
    ("cache_indices", GOOD.cache_indices.float()),
    ("cache_indices", GOOD.cache_indices.repeat_interleave(2)[::2]),
    ("cache_lengths", torch.zeros(2)),
    ("cache_lengths", torch.zeros(3, dtype=torch.int32)),
    ("cache_lengths", torch.tensor([9, 0, 4, 0], dtype=torch.int32)[::2]),
    ("cache_lengths", torch.tensor([9, 4], dtype=torch.int32, device="meta")),
    ("mask_indptr", torch.zeros((), dtype=torch.int64)),
    ("mask_indptr", torch.zeros(1, dtype=torch.int64)),
    ("mask_indptr", torch.zeros(3)),
    ("mask_indptr", torch.zeros(6, dtype=torch.int64)[::2]),
    ("mask_indptr", torch.zeros(3, dtype=torch.int64, device="meta")),
    ("max_nodes", 3.0),
    ("max_nodes", 0),
    ("max_nodes", 66),
    ("scale", 0.0),
    ("scale", float("nan")),
    ("scale", float("inf")),
    ("latent", 48),
    ("latent", 33),
    ("page_size", 0),
    ("page_size", 3),
    ("page_size", -2),
    ("page_size", 2.0),
    ("logit_cap", -1.0),
    ("logit_cap", float("inf")),
    ("key_scale", 0.0),
    ("value_scale", -1.0),
    ("value_scale", float("nan")),
    ("ancestors", torch.zeros(7, dtype=torch.int32)),
    ("ancestors", torch.zeros(3, dtype=torch.int64)),
    ("ancestors", torch.zeros(14, dtype=torch.int64)[::2]),
    ("ancestors", torch.zeros(7, dtype=torch.int64, device="meta")),
    ("full_mask", torch.zeros(9, dtype=torch.bool)),
)


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{i}-{name}" for i, (name, _) in enumerate(WRONG)])
def test_the_wrong_argument_is_named(name: str, value: object) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=rf"^{name} is .*; it must be "):
        dataclasses.replace(GOOD, **given)


def test_a_full_mask_needs_its_starts() -> None:
    with pytest.raises(ValueError, match=r"^mask_indptr is None; it must be given where full_mask is"):
        dataclasses.replace(GOOD, ancestors=None, full_mask=torch.zeros(9, dtype=torch.bool))


def test_pages_need_lengths() -> None:
    whole = torch.zeros(64, 48, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"^cache_lengths is None"):
        dataclasses.replace(GOOD, cache=whole, page_size=16)


PAGED = random_problem(
    Shape(lengths=(9, 4), nodes=(3, 2), heads=2, latent=32, rope=16, mask="full", page_size=4, dtype=torch.float16),
    seed=1,
)


@pytest.mark.parametrize("problem", [GOOD, PAGED], ids=["slots", "pages"])
def test_the_ranges_of_random_problems_are_right(problem: Problem) -> None:
    check_ranges(problem)


@pytest.mark.parametrize(
    ("problem", "name", "value", "said"),
    [
        (GOOD, "cache_indices", torch.full((13,), 10_000), "from 10000 to 10000; it must be within 0 to"),
        (GOOD, "cache_indices", torch.tensor([-1] + [3] * 12), "from -1 to 3; it must be within 0 to"),
        (GOOD, "query_indptr", torch.tensor([0, 4, 3]), "falling; it must be rising"),
        (GOOD, "query_indptr", torch.tensor([6, 7, 9]), "ending at 9; it must be within 7 nodes"),
        (GOOD, "query_indptr", torch.tensor([-1, 2, 4]), "starting at -1; it must be 0 or more"),
        (GOOD, "max_nodes", 2, "2; it must be at least 3, which one request has"),
        (GOOD, "cache_indptr", torch.tensor([0, 9, 4]), "falling; it must be rising"),
        (GOOD, "cache_indptr", torch.tensor([-9, 0, 4]), "starting at -9; it must be 0 or more"),
        (GOOD, "cache_indptr", torch.tensor([0, 9, 40]), "ending at 40; it must be within 18 cache_indices"),
        (PAGED, "cache_lengths", torch.tensor([13, 4]), "[13, 4]; it must be 0 up to [12, 4]"),
        (PAGED, "cache_lengths", torch.tensor([9, -4]), "[9, -4]; it must be 0 up to [12, 4]"),
        (PAGED, "mask_indptr", torch.tensor([0, 900]), "from 0, to 912 cells; it must be within"),
        (PAGED, "mask_indptr", torch.tensor([-5, 3]), "from -5, to"),
    ],
)
def test_what_only_the_numbers_tell_is_named_too(problem: Problem, name: str, value: object, said: str) -> None:
    given: dict[str, Any] = {name: value}
    wrong = dataclasses.replace(problem, **given)
    for run in (check_ranges, specification, mla_verify):
        with pytest.raises(ValueError, match=re.escape(said)) as reason:
            run(wrong)
        assert str(reason.value).startswith(f"{name} is ")


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(7, 2, 31, dtype=torch.bfloat16),
        torch.empty(6, 2, 32, dtype=torch.bfloat16),
        torch.empty(7, 2, 64, dtype=torch.bfloat16)[..., ::2],
        torch.empty(7, 2, 32),
        torch.empty(7, 2, 32, dtype=torch.bfloat16, device="meta"),
    ],
    ids=["narrow", "short", "strided", "float32", "elsewhere"],
)
def test_out_is_checked(out: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^out is .*; it must be "):
        mla_verify(GOOD, out=out)


def test_a_device_without_the_kernels_is_named() -> None:
    tensors: dict[str, Any] = {
        name: value.to("meta") for name, value in vars(GOOD).items() if isinstance(value, torch.Tensor)
    }
    with pytest.raises(ValueError, match=r"^query is on meta; it must be on a CUDA device$"):
        mla_verify(dataclasses.replace(GOOD, **tensors))


@pytest.mark.parametrize(
    ("latent", "rope", "said"),
    [
        (8, 16, "latent is 8; it must be 16 to 512"),
        (1024, 64, "latent is 1024; it must be 16 to 512"),
        (32, 8, "query is of 8 rotary elements; it must be of 16 to 64"),
        (32, 128, "query is of 128 rotary elements; it must be of 16 to 64"),
    ],
)
def test_widths_that_the_tiles_do_not_fit_are_refused(latent: int, rope: int, said: str) -> None:
    problem = random_problem(Shape(lengths=(3,), nodes=(2,), heads=1, latent=latent, rope=rope), seed=1)
    with pytest.raises(ValueError, match=f"^{said}$"):
        mla_verify(problem)


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(ValueError, match=r"^kernel is fastest; it must be one of hopper, portable$"):
        mla_verify(GOOD, kernel="fastest")  # type: ignore[arg-type]


def test_hopper_names_what_it_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"^kernel is hopper; it must be another one: it takes latent 512"):
        mla_verify(GOOD, kernel="hopper")


@pytest.mark.parametrize(("architecture", "said"), [(90, None), (100, "it runs on sm_90 only, not on sm_100")])
def test_the_hopper_kernel_is_for_hopper_only(
    architecture: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(Shape(lengths=(3,), nodes=(2,), heads=1), seed=1)
    with pytest.raises(ValueError, match=r"^kernel is hopper; it must be another one: Triton interprets here$"):
        mla_verify(problem, kernel="hopper")
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "architecture_of", lambda _: architecture)
    assert launch.hopper_refusal(problem) == said


def test_an_unknown_architecture_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"^architecture is sm_75"):
        choose(16, fp8=False, architecture=75)
    assert choose(16, fp8=False, architecture=121) == choose(16, fp8=False, architecture=120)


def test_workspace_is_kept() -> None:
    workspace = Workspace()
    first, _ = workspace.reserve(80, 10, torch.device("cpu"))
    again, _ = workspace.reserve(40, 5, torch.device("cpu"))
    assert first.data_ptr() == again.data_ptr()


def test_a_workspace_on_another_device_is_not_used() -> None:
    workspace = Workspace()
    workspace.reserve(80, 10, torch.device("cpu"))
    partial, lse = workspace.reserve(80, 10, torch.device("meta"))
    assert (partial.device.type, lse.device.type) == ("meta", "meta")
