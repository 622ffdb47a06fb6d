"""Wrong arguments raise a ValueError that names them, says what they were and what they must be."""

import dataclasses
from typing import Any

import pytest
import torch

from draftmark.kernels.mla_verify.launch import Workspace, mla_verify
from draftmark.kernels.mla_verify.problem import check_ranges
from draftmark.kernels.mla_verify.problems import Shape, random_problem
from draftmark.kernels.mla_verify.tiles import choose

GOOD = random_problem(Shape(lengths=(9, 4), nodes=(3, 2), heads=2, latent=32, rope=16), seed=1)

WRONG: tuple[tuple[str, Any], ...] = (
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
    ("query_indptr", GOOD.query_indptr.float()),
    ("query_indptr", GOOD.query_indptr[:1]),
    ("cache_indptr", GOOD.cache_indptr[:-1]),
    ("cache_indices", GOOD.cache_indices[None]),
    ("cache_indices", GOOD.cache_indices.to("meta")),
    ("cache_lengths", torch.zeros(2)),
    ("cache_lengths", torch.zeros(3, dtype=torch.int32)),
    ("max_nodes", 0),
    ("max_nodes", 66),
    ("scale", 0.0),
    ("latent", 48),
    ("latent", 33),
    ("page_size", 0),
    ("page_size", 3),
    ("logit_cap", -1.0),
    ("key_scale", 0.0),
    ("value_scale", -1.0),
    ("ancestors", torch.zeros(7, dtype=torch.int32)),
    ("ancestors", torch.zeros(3, dtype=torch.int64)),
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_indices", torch.full((13,), 10_000)),
        ("cache_indices", torch.full((13,), -1)),
        ("query_indptr", torch.tensor([0, 4, 3])),
        ("query_indptr", torch.tensor([0, 3, 9])),
        ("cache_indptr", torch.tensor([0, 9, 4])),
    ],
)
def test_ranges(name: str, value: torch.Tensor) -> None:
    check_ranges(GOOD)
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=r"it must be"):
        check_ranges(dataclasses.replace(GOOD, **given))


def test_out_is_checked() -> None:
    with pytest.raises(ValueError, match=r"^out is "):
        mla_verify(GOOD, out=torch.empty(7, 2, 31, dtype=torch.bfloat16))


def test_hopper_names_what_it_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"^kernel is hopper; it must be another one: it takes latent 512"):
        mla_verify(GOOD, kernel="hopper")


def test_an_unknown_architecture_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"^architecture is sm_75"):
        choose(16, fp8=False, architecture=75)
    assert choose(16, fp8=False, architecture=121) == choose(16, fp8=False, architecture=120)


def test_workspace_is_kept() -> None:
    workspace = Workspace()
    first, _ = workspace.reserve(80, 10, torch.device("cpu"))
    again, _ = workspace.reserve(40, 5, torch.device("cpu"))
    assert first.data_ptr() == again.data_ptr()
