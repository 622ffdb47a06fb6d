"""The portable kernel in Triton's interpreter, against the specification.

The interpreter computes bfloat16 wrongly (it works on the bits), so these run in float16; on a GPU it is bfloat16.
"""

import dataclasses
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.kernels.mla_verify import schedule
from draftmark.kernels.mla_verify.launch import MIN_TILES, Workspace, mla_verify, multiprocessors, portable_tile
from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.problems import (
    Shape,
    ancestor_matrix,
    random_parents,
    random_problem,
    relative_error,
    words_of,
)
from draftmark.kernels.mla_verify.specification import specification

TOLERANCE = 2e-3
"""float16 with float32 sums; measured 1.7e-4 to 2.5e-4."""

SMALL: dict[str, Any] = {"latent": 32, "rope": 16, "dtype": torch.float16}

SHAPES = (
    Shape(lengths=(70, 0, 33), nodes=(5, 3, 0), heads=3, latent=512, rope=64, dtype=torch.float16),
    Shape(lengths=(70, 0, 33), nodes=(5, 3, 1), heads=2, mask="full", wide=False, **SMALL),
    Shape(lengths=(70, 5), nodes=(5, 3), heads=4, mask="causal", page_size=16, **SMALL),
    Shape(lengths=(300,), nodes=(65,), heads=1, **SMALL),
    Shape(lengths=(90,), nodes=(9,), heads=2, logit_cap=5.0, **SMALL),
    Shape(lengths=(90,), nodes=(2,), heads=128, **SMALL),
    Shape(lengths=(0, 37, 5), nodes=(4, 0, 9), heads=3, mask="full", page_size=4, logit_cap=3.0, wide=False, **SMALL),
    Shape(lengths=(64, 1), nodes=(1, 6), heads=2, page_size=64, cache_dtype=torch.float8_e4m3fn, **SMALL),
    Shape(lengths=(0, 0), nodes=(3, 1), heads=2, mask="causal", logit_cap=0.5, **SMALL),
    Shape(
        lengths=(90, 1), nodes=(9, 9), heads=2, cache_dtype=torch.float8_e4m3fn, key_scale=0.5, value_scale=0.7, **SMALL
    ),
)


def run_poisoned(problem: Problem) -> torch.Tensor:
    """Run with NaN in everything that the kernel has to write before it reads."""
    workspace = Workspace()
    workspace.reserve(20_000 * problem.latent, 20_000, problem.query.device)
    for tensor in (workspace.partial, workspace.lse):
        assert tensor is not None
        tensor.fill_(float("nan"))
    out = torch.full((*problem.query.shape[:2], problem.latent), float("nan"), dtype=problem.query.dtype)
    return mla_verify(problem, out=out, workspace=workspace)[: int(problem.query_indptr[-1])]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.mask}-{shape.nodes}x{shape.heads}")
def test_equals_the_specification(shape: Shape) -> None:
    problem = random_problem(shape, seed=1)
    found = run_poisoned(problem)
    assert relative_error(found, specification(problem)[: found.shape[0]]) < TOLERANCE


@settings(max_examples=6, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), min_size=1, max_size=4),
    heads=st.sampled_from((1, 2, 5, 8)),
    mask=st.sampled_from(("ancestors", "full", "causal")),
    seed=st.integers(0, 1000),
)
def test_any_batch(requests: list[tuple[int, int]], heads: int, mask: str, seed: int) -> None:
    lengths, nodes = zip(*requests, strict=True)
    if not any(nodes):
        return
    problem = random_problem(Shape(lengths=lengths, nodes=nodes, heads=heads, mask=mask, **SMALL), seed)
    found = run_poisoned(problem)
    assert relative_error(found, specification(problem)[: found.shape[0]]) < TOLERANCE


def test_a_row_that_sees_nothing_is_zero() -> None:
    shape = Shape(lengths=(0, 40), nodes=(3, 3), heads=2, mask="full", **SMALL)
    problem = random_problem(shape, seed=3)
    assert problem.full_mask is not None
    blind = dataclasses.replace(problem, full_mask=torch.zeros_like(problem.full_mask))
    found = run_poisoned(blind)
    assert bool((found[:3] == 0).all()), "no committed token, and no node of its own"
    assert relative_error(found, specification(blind)[:6]) < TOLERANCE


def test_requests_without_nodes_are_not_read_and_nothing_is_written_for_them() -> None:
    shape = Shape(lengths=(0, 0), nodes=(2, 1), heads=2, mask="causal", **SMALL)
    idle = dataclasses.replace(random_problem(shape, seed=3), query_indptr=torch.tensor([0, 0, 0]))
    out = torch.full((*idle.query.shape[:2], idle.latent), 7.0, dtype=torch.float16)
    assert bool((mla_verify(idle, out=out) == 7.0).all())


def test_identical_from_run_to_run() -> None:
    problem = random_problem(SHAPES[0], seed=2)
    assert torch.equal(run_poisoned(problem), run_poisoned(problem))


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 700), min_size=1, max_size=5).map(tuple),
    idle=st.integers(0, 5),
)
def test_the_parts_are_those_of_the_schedule(lengths: tuple[int, ...], idle: int) -> None:
    nodes = tuple(0 if request == idle and len(lengths) > 1 else 2 for request in range(len(lengths)))
    problem = random_problem(Shape(lengths=lengths, nodes=nodes, heads=2, mask="causal", **SMALL), seed=3)
    tile = portable_tile(problem)
    teams = schedule.teams_for(multiprocessors(torch.device("cpu")), 1)
    slots = teams + 2 * len(lengths)
    workspace = Workspace(partial=torch.empty(slots * tile.rows * 32), lse=torch.full((slots * tile.rows,), math.nan))
    mla_verify(problem, workspace=workspace, tile=tile)
    assert workspace.lse is not None
    written = (~workspace.lse.view(slots, tile.rows)[:, 0].isnan()).nonzero().flatten().tolist()
    tiles = tuple(-(-length // tile.tokens) if count else 0 for length, count in zip(lengths, nodes, strict=True))
    wanted = [part.slot for part in schedule.parts(tiles, teams, MIN_TILES)]
    drafts = [teams + len(lengths) + request for request, count in enumerate(nodes) if count]
    assert written == wanted + drafts


def test_a_tree_equals_its_paths_one_by_one() -> None:
    nodes = 12
    parents = random_parents(nodes, random.Random(7))
    seen = ancestor_matrix(parents)
    shape = Shape(lengths=(100,), nodes=(nodes,), heads=2, **SMALL)
    tree = dataclasses.replace(
        random_problem(shape, seed=7), ancestors=torch.cat([words_of(seen), torch.zeros(2).long()])
    )
    whole = run_poisoned(tree)
    for node in range(nodes):
        path = seen[node].nonzero().flatten()
        chain = dataclasses.replace(
            tree,
            query=tree.query[path].contiguous(),
            draft_keys=tree.draft_keys[path].contiguous(),
            query_indptr=torch.tensor([0, len(path)]),
            ancestors=None,
        )
        assert relative_error(run_poisoned(chain)[-1], whole[node]) < TOLERANCE


def test_one_node_equals_ordinary_decode() -> None:
    problem = random_problem(Shape(lengths=(77,), nodes=(1,), heads=2, mask="causal", **SMALL), seed=8)
    keys = torch.cat([problem.cache[problem.cache_indices[:77]], problem.draft_keys[:1]]).double()
    logits = torch.einsum("hw,kw->hk", problem.query[0].double(), keys) * problem.scale
    wanted = logits.softmax(-1) @ keys[:, : problem.latent]
    assert relative_error(run_poisoned(problem)[0], wanted) < TOLERANCE


def test_the_interpreter_has_several_teams() -> None:
    assert multiprocessors(torch.device("cpu")) > 1, "with one team no test here would merge anything"
