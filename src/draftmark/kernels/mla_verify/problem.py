"""What a verify call is given, checked before anything is launched: a wrong argument is a ValueError that names it."""

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
        self._check_sizes()
        self._check_shapes()
        self._check_types()
        self._check_mask()

    def _check_sizes(self) -> None:
        need(1 <= self.max_nodes <= MAX_NODES, "max_nodes", self.max_nodes, f"1 to {MAX_NODES}")
        need(self.page_size >= 1, "page_size", self.page_size, "1 or more")
        need(self.page_size & (self.page_size - 1) == 0, "page_size", self.page_size, "a power of two")
        need(self.logit_cap >= 0, "logit_cap", self.logit_cap, "0 or more")
        need(self.scale > 0, "scale", self.scale, "positive")
        need(self.key_scale > 0, "key_scale", self.key_scale, "positive")
        need(self.value_scale > 0, "value_scale", self.value_scale, "positive")

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
            need(tensor.dim() == 1 and tensor.shape[0] >= 2, name, shape(tensor), "[requests + 1]")
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
            need(words.device == self.query.device, "ancestors", words.device, f"on {self.query.device}")
        if mask is not None:
            need(mask.dtype in MASK_DTYPES, "full_mask", mask.dtype, f"one of {MASK_DTYPES}")
            need(mask.dim() == 1 and mask.is_contiguous(), "full_mask", shape(mask), "one contiguous dimension")
            need(mask.device == self.query.device, "full_mask", mask.device, f"on {self.query.device}")
            need(starts is not None, "mask_indptr", None, "given where full_mask is")
        if starts is not None:
            need(starts.dtype in INDEX_DTYPES, "mask_indptr", starts.dtype, f"one of {INDEX_DTYPES}")
            need(starts.shape[0] >= self.requests, "mask_indptr", shape(starts), f"{self.requests} or more long")
        if self.page_size > 1:
            need(lengths is not None, "cache_lengths", None, "given where page_size is above 1")
        if lengths is not None:
            need(lengths.dtype in INDEX_DTYPES, "cache_lengths", lengths.dtype, f"one of {INDEX_DTYPES}")
            need(shape(lengths) == (self.requests,), "cache_lengths", shape(lengths), f"[{self.requests}]")


def check_ranges(problem: Problem) -> None:
    """Read the offsets and indices back and check them: for tests and tools, since it waits for the device.

    Raises:
        ValueError: an offset falls, a request has more nodes than max_nodes, or an index lies outside the cache.
    """
    nodes = problem.query_indptr.diff()
    tokens = problem.cache_indptr.diff()
    need(bool((nodes >= 0).all()), "query_indptr", "falling", "rising")
    need(bool((tokens >= 0).all()), "cache_indptr", "falling", "rising")
    most = int(nodes.max())
    need(most <= problem.max_nodes, "max_nodes", problem.max_nodes, f"at least {most}, which one request has")
    end = int(problem.query_indptr[-1])
    need(end <= problem.query.shape[0], "query_indptr", f"ending at {end}", f"within {problem.query.shape[0]} nodes")
    used = problem.cache_indices[: int(problem.cache_indptr[-1])]
    need(used.shape[0] == int(problem.cache_indptr[-1]), "cache_indices", shape(used), "as long as cache_indptr says")
    pages = problem.cache.shape[0] // problem.page_size
    inside = used.numel() == 0 or (int(used.min()) >= 0 and int(used.max()) < pages)
    need(inside, "cache_indices", f"reaching {used.max() if used.numel() else 0}", f"0 to {pages - 1}")
    if problem.cache_lengths is not None:
        room = tokens * problem.page_size
        need(bool((problem.cache_lengths <= room).all()), "cache_lengths", "beyond the pages", "within them")


def need(condition: bool, name: str, was: object, must: str) -> None:
    """Raise the ValueError of a wrong argument: its name, what it was and what it must be."""
    if not condition:
        raise ValueError(f"{name} is {was}; it must be {must}")


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape as a plain tuple."""
    return tuple(tensor.shape)


def is_power_of_two(number: int) -> bool:
    """Whether `number` is 1, 2, 4 and so on."""
    return number > 0 and number & (number - 1) == 0
