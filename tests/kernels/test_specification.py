"""The specification itself, against arithmetic that shares nothing with it."""

import math

import torch

from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.problems import Shape, random_problem
from draftmark.kernels.mla_verify.specification import specification, visible


def small(**changes: object) -> Problem:
    given: dict[str, object] = {
        "query": torch.ones(2, 1, 4),
        "draft_keys": torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0]]),
        "cache": torch.tensor([[9.0, 9, 9, 9], [1, 0, 1, 0], [0, 2, 0, 1]]),
        "query_indptr": torch.tensor([0, 2]),
        "cache_indptr": torch.tensor([0, 2]),
        "cache_indices": torch.tensor([2, 1]),
        "max_nodes": 2,
        "scale": 0.5,
        "latent": 2,
    }
    half = {name: given[name].bfloat16() for name in ("query", "draft_keys", "cache")}  # type: ignore[attr-defined]
    return Problem(**(given | half | changes))  # type: ignore[arg-type]


def test_two_nodes_by_hand() -> None:
    found = specification(small())
    weights = [math.exp(1.5), math.exp(1.0), math.exp(0.5), math.exp(0.5)]
    first = [(weights[1] * 1) / sum(weights[:3]), (weights[0] * 2 + weights[2] * 1) / sum(weights[:3])]
    second = [(weights[1] + weights[3]) / sum(weights), (weights[0] * 2 + weights[2]) / sum(weights)]
    assert torch.allclose(found[:, 0], torch.tensor([first, second], dtype=torch.float64))


def test_logit_cap_and_scales_by_hand() -> None:
    found = specification(small(logit_cap=1.0, key_scale=2.0, value_scale=3.0, ancestors=torch.tensor([0, 0])))
    logits = [math.tanh(3.0), math.tanh(2.0), math.tanh(0.5)]
    weights = [math.exp(logit) for logit in logits]
    wanted = [3 * weights[1] / sum(weights), (3 * 2 * weights[0] + weights[2]) / sum(weights)]
    assert torch.allclose(found[:, 0], torch.tensor([wanted, wanted], dtype=torch.float64))


def test_root_is_visible_whatever_the_words_say_and_sixty_five_nodes_fit() -> None:
    problem = random_problem(Shape(lengths=(0,), nodes=(65,), heads=1, latent=16, rope=16), seed=3)
    seen = visible(problem, 0, 0)
    assert seen.shape == (65, 65)
    assert bool(seen[:, 0].all())
    assert bool(seen.diagonal().all())


def test_a_row_that_sees_nothing_is_zero() -> None:
    nothing = {"full_mask": torch.zeros(4, dtype=torch.bool), "mask_indptr": torch.tensor([0])}
    found = specification(small(cache_indptr=torch.tensor([0, 0]), **nothing))
    assert bool((found == 0).all())


def test_every_mask_says_the_same() -> None:
    outputs = []
    for mask in ("ancestors", "full"):
        shape = Shape(lengths=(9, 0), nodes=(7, 12), heads=2, latent=16, rope=16, mask=mask)
        outputs.append(specification(random_problem(shape, seed=5))[:19])
    assert torch.equal(*outputs)
