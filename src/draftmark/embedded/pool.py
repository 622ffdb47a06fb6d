"""The pool: every layer's keys and values, reserved once; a request's cache is a stretch of it, read without copying.

A request gets one contiguous stretch, so that attention can read a view. The cost: a request may have to wait although
enough tokens are free, where they lie apart. It never waits for ever: the gaps grow together as requests end.
"""

from typing import Any, Final

import torch
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

PAGE: Final = 1


@torch.inference_mode()
def probe(model: PreTrainedModel) -> list[DynamicLayer]:
    """What one token leaves in each layer of transformers' own cache, one that holds keys and values alone."""
    cache = DynamicCache(config=model.config)
    model(torch.zeros((1, 1), dtype=torch.long, device=model.device), cache=cache, use_cache=True)
    return list(cache.layers)


def token_bytes(layers: list[DynamicLayer]) -> int:
    """Bytes of one token over all layers of a `probe`."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)


class SlabLayer(CacheLayerMixin):
    """One layer of one request's cache: views of the pool, [1, heads, tokens, elements], filled from the front."""

    supports_early_init = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, window: int | None) -> None:
        self.keys, self.values, self.window = keys, values, window
        self.is_sliding, self.is_initialized = window is not None, True
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the pool was reserved at start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new tokens; gives back what they attend to, as views."""
        attended, first = self.get_mask_sizes(key_states.shape[-2])
        end = first + attended
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, first:end], self.values[:, :, first:end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens that the next `query_length` ones attend to, and the position of the first of them."""
        first = 0 if self.window is None else max(self.length - self.window + 1, 0)
        return self.length + query_length - first, first

    def get_seq_length(self) -> int:
        """Tokens stored."""
        return self.length

    def get_max_length(self) -> int:
        """Tokens that fit."""
        return self.keys.shape[-2]


class Slab(Cache):
    """One request's cache: the tokens `span` of the pool."""

    def __init__(self, layers: list[SlabLayer], span: range) -> None:
        super().__init__(layers)
        self.span = span


class Pool:
    """Keys and values for `tokens` tokens, written once so that the memory is really taken."""

    def __init__(self, probed: list[DynamicLayer], tokens: int) -> None:
        self.tokens, self.bytes = tokens, tokens * token_bytes(probed)
        self._taken: list[range] = []
        self._layers = [(layer.keys.repeat(1, 1, tokens, 1), layer.values.repeat(1, 1, tokens, 1)) for layer in probed]
        self._windows = [layer.sliding_window if layer.is_sliding else None for layer in probed]

    @property
    def used(self) -> int:
        """Tokens that are reserved."""
        return sum(map(len, self._taken))

    def reserve(self, size: int) -> Slab | None:
        """An empty cache in the first free stretch that is long enough; None where there is none now."""
        start = 0
        for taken in self._taken:
            if taken.start - start >= size:
                break
            start = taken.stop
        if start + size > self.tokens:
            return None
        span = range(start, start + size)
        self._taken = sorted([*self._taken, span], key=lambda taken: taken.start)
        views = [(keys[:, :, start : span.stop], values[:, :, start : span.stop]) for keys, values in self._layers]
        return Slab([SlabLayer(*view, window) for view, window in zip(views, self._windows, strict=True)], span)

    def release(self, slab: Slab) -> None:
        """Give a stretch back."""
        self._taken.remove(slab.span)
