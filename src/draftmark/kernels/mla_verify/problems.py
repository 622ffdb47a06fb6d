"""Random problems for tests, checks and benchmarks: ragged lengths, random trees, shuffled slots, poison.

Poison is NaN, or an index far outside, wherever nothing may be read.
"""

import random
from dataclasses import dataclass

import torch

from draftmark.kernels.mla_verify.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a random problem is drawn for: a committed length and a number of draft nodes for each request."""

    lengths: tuple[int, ...]
    nodes: tuple[int, ...]
    heads: int
    mask: str = "ancestors"
    latent: int = 512
    rope: int = 64
    page_size: int = 1
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None
    logit_cap: float = 0.0
    key_scale: float = 1.0
    value_scale: float = 1.0
    wide: bool = True
    """Offsets and indices in int64, or else int32."""


def random_parents(nodes: int, rng: random.Random) -> list[int]:
    """A random tree in topological order: the parent of each node, -1 for the root."""
    return [] if nodes == 0 else [-1] + [rng.randrange(max(0, node - 6), node) for node in range(1, nodes)]


def ancestor_matrix(parents: list[int]) -> torch.Tensor:
    """Bool [nodes, nodes]: whether the column is the row itself or an ancestor of it."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


def words_of(seen: torch.Tensor) -> torch.Tensor:
    """One 64-bit word a node: bit j - 1 for node j."""
    words = []
    for row in seen[:, 1:].tolist():
        word = sum(1 << bit for bit, on in enumerate(row) if on)
        words.append(word - (1 << 64) if word >= 1 << 63 else word)
    return torch.tensor(words, dtype=torch.int64)


def random_problem(shape: Shape, seed: int, device: str = "cpu") -> Problem:
    """Draw a problem of this shape; the same seed draws the same one on the same kind of device."""
    rng, generator = random.Random(seed), torch.Generator(device).manual_seed(seed)
    width, page = shape.latent + shape.rope, shape.page_size
    pages = tuple(-(-length // page) for length in shape.lengths)
    nodes, spare = sum(shape.nodes), 2
    index = torch.int64 if shape.wide else torch.int32
    order, cache = random_cache(shape, pages, generator, device)
    trees = [ancestor_matrix(random_parents(count, rng)) for count in shape.nodes]
    query = torch.randn(nodes + spare, shape.heads, width, generator=generator, device=device)
    keys = torch.randn(nodes + spare, width, generator=generator, device=device)
    query[nodes:], keys[nodes:] = float("nan"), float("nan")
    beyond = torch.full((5,), 2**31 - 1, device=device)
    return Problem(
        query=query.to(shape.dtype),
        draft_keys=keys.to(shape.dtype),
        cache=cache,
        query_indptr=offsets(shape.nodes, index).to(device),
        cache_indptr=offsets(pages, torch.int32).to(device),
        cache_indices=torch.cat([order, beyond]).to(index),
        cache_lengths=torch.tensor(shape.lengths, dtype=torch.int32, device=device) if page > 1 else None,
        max_nodes=max(shape.nodes),
        scale=width**-0.5 * rng.uniform(0.5, 3.0),
        latent=shape.latent,
        page_size=page,
        logit_cap=shape.logit_cap,
        key_scale=shape.key_scale,
        value_scale=shape.value_scale,
        **{name: tensor.to(device) for name, tensor in masks(shape, trees, spare).items()},
    )


def random_cache(
    shape: Shape, pages: tuple[int, ...], generator: torch.Generator, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The requests' pages, shuffled, and a cache in which all other slots, and those beyond a length, are NaN."""
    page, width = shape.page_size, shape.latent + shape.rope
    total = sum(pages)
    order = torch.randperm(2 * total + 3 if total < 1 << 17 else total + 3, generator=generator, device=device)
    used = torch.zeros(order.shape[0] * page, dtype=torch.bool, device=device)
    cache = torch.randn(used.shape[0], width, generator=generator, device=device, dtype=torch.float32)
    order, start = order[:total], 0
    for length, count in zip(shape.lengths, pages, strict=True):
        own = order[start : start + count, None] * page + torch.arange(page, device=device)
        used[own.flatten()[:length]] = True
        start += count
    cache[~used] = float("nan")
    return order, cache.to(shape.cache_dtype or shape.dtype)


def offsets(counts: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Where each request's part starts, and the end."""
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=dtype)


def masks(shape: Shape, trees: list[torch.Tensor], spare: int) -> dict[str, torch.Tensor]:
    """The mask's tensors in the form that the shape asks for; a causal one needs none."""
    if shape.mask == "ancestors":
        return {"ancestors": torch.cat([*map(words_of, trees), torch.full((spare,), -1)])}
    if shape.mask == "full":
        return full_mask(shape, trees)
    return {}


def full_mask(shape: Shape, trees: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """SGLang's buffer: every request's rows one after another, committed columns 0 (they are not to be read)."""
    parts, starts = [], [0]
    for length, tree in zip(shape.lengths, trees, strict=True):
        count = tree.shape[0]
        parts.append(torch.cat([torch.zeros(count, length, dtype=torch.bool), tree], dim=1).flatten())
        starts.append(starts[-1] + count * (length + count))
    return {"full_mask": torch.cat([*parts, torch.ones(7, dtype=torch.bool)]), "mask_indptr": torch.tensor(starts)}


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of what was wanted; NaN stays NaN."""
    difference = (found.double() - wanted.double()).norm()
    return float(difference / wanted.double().norm().clamp_min(1e-30))
