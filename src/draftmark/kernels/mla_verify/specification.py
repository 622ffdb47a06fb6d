"""What the kernels must compute: plain PyTorch in high precision, one request after another, nothing clever."""

import torch

from draftmark.kernels.mla_verify.problem import Problem, check_ranges


def visible(problem: Problem, request: int, length: int) -> torch.Tensor:
    """Which draft nodes each node of one request attends to: bool [nodes, nodes]; the root is always visible."""
    first, last = (int(problem.query_indptr[request + i]) for i in (0, 1))
    nodes = last - first
    if problem.ancestors is not None:
        words = problem.ancestors[first:last].cpu()
        bits = torch.arange(max(nodes - 1, 0))
        others = (words[:, None] >> bits[None, :]) & 1
        return torch.cat([torch.ones(nodes, 1, dtype=torch.bool), others.bool()], dim=1)[:, :nodes]
    if problem.full_mask is not None and problem.mask_indptr is not None:
        start, columns = int(problem.mask_indptr[request]), length + nodes
        cells = problem.full_mask[start : start + nodes * columns].cpu().reshape(nodes, columns)
        return cells[:, length:].bool()
    return torch.ones(nodes, nodes, dtype=torch.bool).tril()


def slots(problem: Problem, request: int) -> torch.Tensor:
    """Slots of one request's committed tokens, in order: int64 [length]."""
    first, last = (int(problem.cache_indptr[request + i]) for i in (0, 1))
    pages = problem.cache_indices[first:last].long()
    inside = torch.arange(problem.page_size, device=pages.device)
    every = (pages[:, None] * problem.page_size + inside[None, :]).flatten()
    return every if problem.cache_lengths is None else every[: int(problem.cache_lengths[request])]


def specification(problem: Problem, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Attention output [nodes, heads, latent] in `dtype`; a row that sees nothing is 0, and so are unowned nodes.

    Raises:
        ValueError: an offset or index lies outside what it points into.
    """
    check_ranges(problem)
    out = torch.zeros(*problem.query.shape[:2], problem.latent, dtype=dtype, device=problem.query.device)
    for request in range(problem.requests):
        first, last = (int(problem.query_indptr[request + i]) for i in (0, 1))
        if last > first:
            out[first:last] = one_request(problem, request, first, last, dtype)
    return out


def one_request(problem: Problem, request: int, first: int, last: int, dtype: torch.dtype) -> torch.Tensor:
    """Output of one request's nodes: [nodes, heads, latent]."""
    where = slots(problem, request)
    committed = problem.cache[where].to(dtype)
    drafts = problem.draft_keys[first:last].to(dtype)
    keys = torch.cat([committed * problem.key_scale, drafts])
    values = torch.cat([committed * problem.value_scale, drafts])[:, : problem.latent]
    logits = torch.einsum("nhw,kw->nhk", problem.query[first:last].to(dtype), keys) * problem.scale
    if problem.logit_cap > 0:
        logits = problem.logit_cap * torch.tanh(logits / problem.logit_cap)
    seen = visible(problem, request, where.shape[0]).to(logits.device)
    logits[:, :, where.shape[0] :].masked_fill_(~seen[:, None, :], float("-inf"))
    weights = torch.softmax(logits, dim=-1).nan_to_num(0.0)
    return torch.einsum("nhk,kl->nhl", weights, values)
