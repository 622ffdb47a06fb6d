"""What a verify call is given, checked before anything is launched: a wrong argument is a ValueError that names it."""

import math
from dataclasses import dataclass
from typing import Final

import torch

MAX_NODES: Final = 65
"""Nodes a tree may have: the root is everyone's ancestor, so 64 bits a node name the others."""
MAX_HEADS: Final = 128
CACHE_DTYPES: Final = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
QUERY_DTYPES: Final = (torch.bfloat16, torch.float16)
INDEX_DTYPES: Final = (torch.int32, torch.int64)
MASK_DTYPES: Final = (torch.bool, torch.uint8)
TENSORS: Final = ("query", "draft_keys", "cache", "query_indptr", "cache_indptr", "cache_indices")
OPTIONAL_TENSORS: Final = ("ancestors", "full_mask", "mask_indptr", "cache_lengths")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One attention layer's verify step. Offsets and indices lie on the device and are never read by the host.

    Shapes: `nodes` counts draft nodes of all requests together, `width` is latent + rope.
    Request r owns the nodes from `query_indptr[r]` to `query_indptr[r + 1]` and the `cache_indices` from
    `cache_indptr[r]` to `cache_indptr[r + 1]`, one for each token or, with `page_size` above 1, one for each page; then
    `cache_lengths` says how many tokens each request has.
    """

    query: torch.Tensor
    """[nodes, heads, width], in absorbed form."""
    draft_keys: torch.Tensor
    """[nodes, width], latent and rotary key of the draft's own nodes, not yet read from the cache."""
    cache: torch.Tensor
    """[slots, width]; the value is the latent, the first `latent` elements."""
    query_indptr: torch.Tensor
    """[requests + 1]."""
    cache_indptr: torch.Tensor
    """[requests + 1], committed tokens (or pages) only."""
    cache_indices: torch.Tensor
    """Slots (page_size 1) or pages."""
    max_nodes: int
    """Most nodes that one request has; known to the host, so that the grid is static."""
    scale: float
    """Softmax scale."""
    latent: int = 512
    ancestors: torch.Tensor | None = None
    """[nodes] int64: bit j - 1 says that node j of the same request is attended; node 0, the root, always is."""
    full_mask: torch.Tensor | None = None
    """SGLang's buffer: for each request nodes x (length + nodes), row-major; the committed columns are not read."""
    mask_indptr: torch.Tensor | None = None
    """[requests + 1], where each request's part of `full_mask` starts."""
    cache_lengths: torch.Tensor | None = None
    """[requests], tokens; wanted where page_size is above 1."""
    page_size: int = 1
    logit_cap: float = 0.0
    """Logits become cap * tanh(logit / cap); 0 leaves them."""
    key_scale: float = 1.0
    """What a stored fp8 key is multiplied with; draft keys are not scaled."""
    value_scale: float = 1.0

    @property
    def requests(self) -> int:
        """Requests in the batch."""
        return self.query_indptr.shape[0] - 1

    @property
    def heads(self) -> int:
        """Query heads on this GPU."""
        return self.query.shape[1]

    @property
    def width(self) -> int:
        """Elements a cached token has: latent and rotary key."""
        return self.query.shape[2]

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_sizes()
        self._check_shapes()
        self._check_types()
        self._check_mask()

    def _check_kinds(self) -> None:
        for name in TENSORS:
            need(isinstance(getattr(self, name), torch.Tensor), name, kind(getattr(self, name)), "a tensor")
        for name in OPTIONAL_TENSORS:
            value = getattr(self, name)
            need(value is None or isinstance(value, torch.Tensor), name, kind(value), "a tensor or None")
        for name in ("max_nodes", "latent", "page_size"):
            need(type(getattr(self, name)) is int, name, kind(getattr(self, name)), "an int")
        for name in ("scale", "logit_cap", "key_scale", "value_scale"):
            need(isinstance(getattr(self, name), float | int), name, kind(getattr(self, name)), "a float on the host")

    def _check_sizes(self) -> None:
        need(1 <= self.max_nodes <= MAX_NODES, "max_nodes", self.max_nodes, f"1 to {MAX_NODES}")
        need(is_power_of_two(self.page_size), "page_size", self.page_size, "a power of two, 1 or more")
        need(math.isfinite(self.logit_cap) and self.logit_cap >= 0, "logit_cap", self.logit_cap, "0 or more, finite")
        for name in ("scale", "key_scale", "value_scale"):
            factor = getattr(self, name)
            need(math.isfinite(factor) and factor > 0, name, factor, "positive and finite")

    def _check_shapes(self) -> None:
        query, keys, cache = self.query, self.draft_keys, self.cache
        need(query.dim() == 3, "query", shape(query), "[nodes, heads, width]")
        need(query.is_contiguous(), "query", f"strides {query.stride()}", "contiguous")
        need(1 <= self.heads <= MAX_HEADS, "query", shape(query), f"of 1 to {MAX_HEADS} heads")
        need(0 < self.latent < self.width, "latent", self.latent, f"between 0 and the width {self.width}")
        need(is_power_of_two(self.latent), "latent", self.latent, "a power of two")
        rope = self.width - self.latent
        need(is_power_of_two(rope), "query", shape(query), "latent + a rotary part that is a power of two wide")
        need(shape(keys) == (query.shape[0], self.width), "draft_keys", shape(keys), f"{query.shape[0], self.width}")
        need(cache.dim() == 2 and cache.shape[1] == self.width, "cache", shape(cache), f"[slots, {self.width}]")
        need(cache.shape[0] % self.page_size == 0, "cache", shape(cache), f"whole pages of {self.page_size} slots")
        for name, tensor in (("query", query), ("draft_keys", keys), ("cache", cache)):
            need(tensor.stride(-1) == 1, name, f"strides {tensor.stride()}", "contiguous in its last dimension")
        for name, tensor in (("query_indptr", self.query_indptr), ("cache_indptr", self.cache_indptr)):
            need(tensor.dim() == 1 and tensor.shape[0] >= 2, name, shape(tensor), "[requests + 1], 2 or more long")
        need(
            self.cache_indptr.shape == self.query_indptr.shape,
            "cache_indptr",
            shape(self.cache_indptr),
            f"as long as query_indptr, {shape(self.query_indptr)}",
        )
        need(self.cache_indices.dim() == 1, "cache_indices", shape(self.cache_indices), "one-dimensional")

    def _check_types(self) -> None:
        need(self.query.dtype in QUERY_DTYPES, "query", self.query.dtype, f"one of {QUERY_DTYPES}")
        need(self.draft_keys.dtype == self.query.dtype, "draft_keys", self.draft_keys.dtype, str(self.query.dtype))
        need(self.cache.dtype in CACHE_DTYPES, "cache", self.cache.dtype, f"one of {CACHE_DTYPES}")
        same = self.cache.dtype in (self.query.dtype, torch.float8_e4m3fn)
        need(same, "cache", self.cache.dtype, f"{self.query.dtype} as the query, or float8_e4m3fn")
        indices = {
            "query_indptr": self.query_indptr,
            "cache_indptr": self.cache_indptr,
            "cache_indices": self.cache_indices,
        }
        for name, tensor in indices.items():
            need(tensor.dtype in INDEX_DTYPES, name, tensor.dtype, f"one of {INDEX_DTYPES}")
            need(tensor.is_contiguous(), name, f"strides {tensor.stride()}", "contiguous")
        others = indices | {"draft_keys": self.draft_keys, "cache": self.cache}
        for name, tensor in others.items():
            need(tensor.device == self.query.device, name, tensor.device, f"on {self.query.device}, as the query")

    def _check_mask(self) -> None:
        words, mask, starts, lengths = self.ancestors, self.full_mask, self.mask_indptr, self.cache_lengths
        need(words is None or mask is None, "full_mask", "given", "left out where ancestors are given")
        if words is not None:
            need(words.dtype == torch.int64, "ancestors", words.dtype, "int64")
            need(shape(words) == (self.query.shape[0],), "ancestors", shape(words), f"[{self.query.shape[0]}]")
            self._check_place("ancestors", words)
        if mask is not None:
            need(mask.dtype in MASK_DTYPES, "full_mask", mask.dtype, f"one of {MASK_DTYPES}")
            need(mask.dim() == 1, "full_mask", shape(mask), "one-dimensional")
            self._check_place("full_mask", mask)
            need(starts is not None, "mask_indptr", None, "given where full_mask is")
        if starts is not None:
            need(starts.dtype in INDEX_DTYPES, "mask_indptr", starts.dtype, f"one of {INDEX_DTYPES}")
            long = starts.dim() == 1 and starts.shape[0] >= self.requests
            need(long, "mask_indptr", shape(starts), f"one-dimensional, {self.requests} or more long")
            self._check_place("mask_indptr", starts)
        if self.page_size > 1:
            need(lengths is not None, "cache_lengths", None, "given where page_size is above 1")
        if lengths is not None:
            need(lengths.dtype in INDEX_DTYPES, "cache_lengths", lengths.dtype, f"one of {INDEX_DTYPES}")
            need(shape(lengths) == (self.requests,), "cache_lengths", shape(lengths), f"[{self.requests}]")
            self._check_place("cache_lengths", lengths)

    def _check_place(self, name: str, tensor: torch.Tensor) -> None:
        need(tensor.is_contiguous(), name, f"strides {tensor.stride()}", "contiguous")
        need(tensor.device == self.query.device, name, f"on {tensor.device}", f"on {self.query.device}, as the query")


def check_ranges(problem: Problem) -> None:
    """Check what only the numbers on the device can tell. Reading them back waits for it, so it is not done on a GPU.

    Raises:
        ValueError: offsets fall or leave what they point into, a request has more nodes than max_nodes, an index lies
            outside the cache, or a request's length or part of the mask is not there.
    """
    for name in ("query_indptr", "cache_indptr"):
        starts = getattr(problem, name)
        need(int(starts[0]) >= 0, name, f"starting at {int(starts[0])}", "0 or more")
        need(bool((starts.diff() >= 0).all()), name, "falling", "rising")
    most = int(problem.query_indptr.diff().max())
    need(most <= problem.max_nodes, "max_nodes", problem.max_nodes, f"at least {most}, which one request has")
    end, nodes = int(problem.query_indptr[-1]), problem.query.shape[0]
    need(end <= nodes, "query_indptr", f"ending at {end}", f"within {nodes} nodes")
    check_indices(problem)
    check_mask_room(problem)


def check_indices(problem: Problem) -> None:
    """Whether the indices in use are there and name pages of the cache, and the lengths fit the pages."""
    first, end = int(problem.cache_indptr[0]), int(problem.cache_indptr[-1])
    have = problem.cache_indices.shape[0]
    need(end <= have, "cache_indptr", f"ending at {end}", f"within {have} cache_indices")
    used, pages = problem.cache_indices[first:end], problem.cache.shape[0] // problem.page_size
    if used.numel():
        low, high = int(used.min()), int(used.max())
        need(low >= 0 and high < pages, "cache_indices", f"from {low} to {high}", f"within 0 to {pages - 1}")
    if problem.cache_lengths is not None:
        room = problem.cache_indptr.diff() * problem.page_size
        fits = (problem.cache_lengths >= 0) & (problem.cache_lengths <= room)
        need(bool(fits.all()), "cache_lengths", problem.cache_lengths.tolist(), f"0 up to {room.tolist()}")


def check_mask_room(problem: Problem) -> None:
    """Whether each request's part of the full mask lies inside it."""
    if problem.full_mask is None or problem.mask_indptr is None:
        return
    nodes = problem.query_indptr.diff()
    lengths = problem.cache_indptr.diff() if problem.cache_lengths is None else problem.cache_lengths
    starts = problem.mask_indptr[: problem.requests]
    ends, cells = starts + nodes * (lengths + nodes), problem.full_mask.shape[0]
    inside = bool((starts >= 0).all()) and int(ends.max()) <= cells
    need(inside, "mask_indptr", f"from {int(starts.min())}, to {int(ends.max())} cells", f"within {cells} cells")


def need(condition: bool, name: str, was: object, must: str) -> None:
    """Raise the ValueError of a wrong argument: its name, what it was and what it must be."""
    if not condition:
        raise ValueError(f"{name} is {was}; it must be {must}")


def kind(value: object) -> str:
    """What a value is, for an error: its type, since a tensor's own numbers may lie on the device."""
    return f"of type {type(value).__name__}"


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape as a plain tuple."""
    return tuple(tensor.shape)


def is_power_of_two(number: int) -> bool:
    """Whether `number` is 1, 2, 4 and so on."""
    return number > 0 and number & (number - 1) == 0
