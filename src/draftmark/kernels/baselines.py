"""Other kernels on the same problem, where installed: each is a function that makes a call, or says why not."""

from collections.abc import Callable
from typing import Any, Final

import torch

from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.specification import visible

Call = Callable[[], Any]
PAGE: Final = 64


class Missing(Exception):
    """A baseline that is not installed or cannot serve the problem; the message says why."""


def sglang_extend(problem: Problem, out: torch.Tensor) -> Call:
    """SGLang's own extend kernel, as its Triton backend calls it for target-verify.

    Raises:
        Missing: SGLang is not installed, or not in a layout that is known.
    """
    try:
        try:
            from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd
        except ModuleNotFoundError:
            from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd
    except (ImportError, OSError) as reason:
        raise Missing(f"SGLang: {reason}") from reason
    cache = problem.cache[:, None]
    keys = problem.draft_keys[:, None]

    def call() -> None:
        extend_attention_fwd(
            problem.query, keys, keys[..., : problem.latent].contiguous(), out, cache, cache[..., : problem.latent],
            problem.query_indptr, problem.cache_indptr, problem.cache_indices, problem.full_mask, True,
            problem.mask_indptr, problem.max_nodes, 1.0, 1.0, problem.scale, logit_cap=problem.logit_cap,
        )  # fmt: skip

    return call


def paged(problem: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same tokens, draft nodes behind the committed ones, in pages of 64: query, cache, block table, lengths.

    Raises:
        Missing: the requests differ in their number of nodes.
    """
    nodes = problem.query_indptr.diff()
    lengths = problem.cache_indptr.diff()
    count = problem.max_nodes
    if not bool((nodes == count).all()):
        raise Missing("it takes the same number of nodes for all requests")
    total = [int(length) + count for length in lengths]
    pages = [-(-length // PAGE) for length in total]
    table = torch.zeros(problem.requests, max(pages), dtype=torch.int32, device=problem.cache.device)
    cache = torch.zeros(sum(pages) * PAGE, problem.width, dtype=problem.cache.dtype, device=problem.cache.device)
    start = 0
    for request, (length, used) in enumerate(zip(total, pages, strict=True)):
        first = int(problem.cache_indptr[request])
        where = problem.cache_indices[first : first + length - count]
        drafts = problem.draft_keys[request * count : (request + 1) * count]
        cache[start * PAGE : start * PAGE + length] = torch.cat([problem.cache[where], drafts])
        table[request, :used] = torch.arange(start, start + used, dtype=torch.int32)
        start += used
    query = problem.query[: problem.requests * count].view(problem.requests, count, problem.heads, problem.width)
    seen = torch.tensor(total, dtype=torch.int32, device=cache.device)
    return query, cache.view(-1, PAGE, 1, problem.width), table, seen


def flashmla(problem: Problem, out: torch.Tensor) -> Call:
    """FlashMLA's dense decode kernel, causal, pages of 64; its output is written to `out`.

    Raises:
        Missing: neither the flash_mla nor the sgl_kernel package is installed.
    """
    try:
        try:
            from flash_mla import flash_mla_with_kvcache, get_mla_metadata
        except ModuleNotFoundError:
            from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata
    except (ImportError, OSError) as reason:
        raise Missing(f"FlashMLA: {reason}") from reason
    query, cache, table, lengths = paged(problem)
    metadata, splits = get_mla_metadata(lengths, problem.max_nodes * problem.heads, 1)

    def call() -> None:
        answer, _ = flash_mla_with_kvcache(
            query, cache, table, lengths, problem.latent, metadata, splits, softmax_scale=problem.scale, causal=True
        )
        out[: answer.shape[0] * answer.shape[1]].copy_(answer.flatten(0, 1))

    return call


def flash_attention_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """FlashAttention-3 over a paged cache, and the merge of two parts by log-sum-exp, from the sgl_kernel package.

    Raises:
        Missing: the library is not installed.
    """
    try:
        from sgl_kernel import merge_state_v2
        from sgl_kernel.flash_attn import flash_attn_with_kvcache
    except (ImportError, OSError) as reason:
        raise Missing(f"FlashAttention-3: {reason}") from reason
    return flash_attn_with_kvcache, merge_state_v2


def flash_attention_3(problem: Problem, out: torch.Tensor) -> Call:
    """FlashAttention-3 with latent values (`qv`), causal, pages of 64, from the sgl_kernel package.

    Raises:
        Missing: its library is not installed.
    """
    flash_attn_with_kvcache, _ = flash_attention_functions()
    query, cache, table, lengths = paged(problem)
    latent = problem.latent

    def call() -> None:
        answer = flash_attn_with_kvcache(
            q=query[..., latent:], k_cache=cache[..., latent:], v_cache=cache[..., :latent], qv=query[..., :latent],
            cache_seqlens=lengths, page_table=table, softmax_scale=problem.scale, causal=True,
        )  # fmt: skip
        out[: answer.shape[0] * answer.shape[1]].copy_(answer.flatten(0, 1))

    try:
        call()
    except (AttributeError, RuntimeError, NotImplementedError, ImportError) as reason:
        raise Missing(f"FlashAttention-3: {str(reason).splitlines()[0]}") from reason
    return call


def ancestor_slots(problem: Problem, table: torch.Tensor, committed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What each node sees of its own tree in the paged cache: slots [nodes, most], seen ones first, and how many."""
    count = problem.max_nodes
    slots, seen_counts = [], []
    for request, length in enumerate(committed.tolist()):
        positions = torch.arange(length, length + count)
        own = table[request].cpu()[positions // PAGE] * PAGE + positions % PAGE
        seen = visible(problem, request, length)
        order = (~seen).int().argsort(dim=1, stable=True)
        slots.append(own[order])
        seen_counts.append(seen.sum(dim=1))
    device = problem.cache.device
    return torch.cat(slots).int().to(device), torch.cat(seen_counts).int().to(device)


def flash_attention_3_cascade(problem: Problem, out: torch.Tensor) -> Call:
    """FlashAttention-3 over a tree, as SGLang's FA3 backend runs it: the committed tokens once for all nodes (pages of
    64), each node's ancestors (pages of 1), and a merge by log-sum-exp.

    Raises:
        Missing: its library is not installed.
    """
    flash_attn_with_kvcache, merge_state_v2 = flash_attention_functions()
    query, cache, table, lengths = paged(problem)
    latent, nodes, device = problem.latent, problem.max_nodes, problem.cache.device
    committed = lengths - nodes
    rows = query.flatten(0, 1)
    slots, seen = ancestor_slots(problem, table, committed)

    def attend(cache: torch.Tensor, pages: torch.Tensor, seqlens: torch.Tensor, each: int) -> Call:
        starts = torch.arange(0, rows.shape[0] + 1, each, dtype=torch.int32, device=device)
        return lambda: flash_attn_with_kvcache(
            q=rows[..., latent:], k_cache=cache[..., latent:], v_cache=cache[..., :latent], qv=rows[..., :latent],
            cache_seqlens=seqlens, page_table=pages, cu_seqlens_q=starts, max_seqlen_q=each,
            softmax_scale=problem.scale, causal=False, return_softmax_lse=True,
        )[:2]  # fmt: skip

    prefix = attend(cache, table, committed, nodes)
    tree = attend(cache.view(-1, 1, 1, problem.width), slots, seen, 1)

    def call() -> None:
        (first, first_lse), (second, second_lse) = prefix(), tree()
        merge_state_v2(first, first_lse.T.contiguous(), second, second_lse.T.contiguous(), out[: rows.shape[0]])

    return call


TREE: Final = {
    "sglang extend": sglang_extend,
    "FlashAttention-3 cascade (page 64)": flash_attention_3_cascade,
}
"""Kernels that take the tree's mask."""
CAUSAL: Final = {"FlashMLA (causal, page 64)": flashmla, "FlashAttention-3 (causal, page 64)": flash_attention_3}
"""Kernels that do the same work on a chain only."""
