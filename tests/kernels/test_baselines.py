"""What other kernels are given on a tree is the same work as ours."""

import torch

from draftmark.kernels.baselines import PAGE, ancestor_slots, paged
from draftmark.kernels.mla_verify.problems import Shape, random_problem
from draftmark.kernels.mla_verify.specification import visible


def test_the_pages_hold_each_request_with_its_draft_nodes_behind() -> None:
    problem = random_problem(Shape(lengths=(70, 0, 200), nodes=(5, 5, 5), heads=2, mask="full"), 4)
    query, cache, table, lengths = paged(problem)
    assert lengths.tolist() == [75, 5, 205]
    assert torch.equal(query.flatten(0, 1), problem.query[:15])
    flat = cache.view(-1, problem.width)
    for request, length in enumerate(lengths.tolist()):
        first = int(problem.cache_indptr[request])
        slots = problem.cache_indices[first : first + length - 5]
        wanted = torch.cat([problem.cache[slots], problem.draft_keys[5 * request : 5 * request + 5]])
        pages = table[request, : -(-length // PAGE)]
        found = torch.cat([flat[int(page) * PAGE : int(page) * PAGE + PAGE] for page in pages])[:length]
        assert torch.equal(found, wanted)


def test_each_node_is_given_its_ancestors_and_nothing_else() -> None:
    problem = random_problem(Shape(lengths=(61, 0, 128), nodes=(7, 7, 7), heads=1, mask="full"), 9)
    _, cache, table, lengths = paged(problem)
    slots, seen = ancestor_slots(problem, table, lengths - 7)
    flat = cache.view(-1, problem.width)
    for request, length in enumerate((61, 0, 128)):
        for node, row in enumerate(visible(problem, request, length)):
            place = request * 7 + node
            assert int(seen[place]) == int(row.sum())
            wanted = problem.draft_keys[request * 7 : request * 7 + 7][row]
            assert torch.equal(flat[slots[place, : int(seen[place])].long()], wanted)
