"""The pool: every layer's keys and values, reserved once; a request's cache is a stretch of it, read without copying.

A request gets one contiguous stretch, so that attention can read a view. The cost: a request may have to wait although
enough tokens are free, where they lie apart. It never waits for ever: the stretches grow together as requests end.
"""

from typing import Any, Final

import msgspec
import torch
from transformers import Cache, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from draftmark.errors import BadInput

PAGE: Final = 1


class LayerShape(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer caches for one token: heads and elements a head of key and value; `window` in tokens."""

    key: tuple[int, int]
    value: tuple[int, int]
    dtype: torch.dtype
    window: int | None

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's key and value."""
        elements = self.key[0] * self.key[1] + self.value[0] * self.value[1]
        return elements * self.dtype.itemsize


def check_layers(config: PreTrainedConfig) -> None:
    """See that every layer caches keys and values alone, by the cache that transformers would make.

    Raises:
        BadInput: a layer does not.
    """
    for index, layer in enumerate(DynamicCache(config=config).layers):
        if type(layer) not in {DynamicLayer, DynamicSlidingWindowLayer}:
            raise BadInput(
                f"its cache ({type(layer).__name__}) is not made of keys and values alone, which the pool cannot hold",
                place=f"{config.model_type} layer {index}",
                remedy="serve a model with full, sliding-window or latent attention",
            )


def probe_shapes(model: PreTrainedModel) -> tuple[LayerShape, ...]:
    """Every layer's shape, read off what one token leaves in transformers' own cache; see `check_layers` first."""
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.zeros((1, 1), dtype=torch.long, device=model.device), cache=cache, use_cache=True)
    return tuple(_shape(layer) for layer in cache.layers)


def _shape(layer: DynamicLayer) -> LayerShape:
    assert layer.keys is not None
    assert layer.values is not None
    return LayerShape(
        key=(layer.keys.shape[1], layer.keys.shape[3]),
        value=(layer.values.shape[1], layer.values.shape[3]),
        dtype=layer.keys.dtype,
        window=layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None,
    )


class SlabLayer(CacheLayerMixin):
    """One layer of one request's cache: views of the pool, filled from the front."""

    supports_early_init = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, window: int | None) -> None:
        super().__init__()
        self.keys, self.values, self.window = keys, values, window
        self.is_sliding = window is not None
        self.is_initialized = True
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the pool was reserved at start."""

    def _first_seen(self) -> int:
        """Position of the first token that the next one attends to."""
        return 0 if self.window is None else max(self.length - self.window + 1, 0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new tokens; gives back what they attend to, as views."""
        assert self.keys is not None
        assert self.values is not None
        first, end = self._first_seen(), self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, first:end], self.values[:, :, first:end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens that the next `query_length` ones attend to, and the position of the first of them."""
        first = self._first_seen()
        return self.length + query_length - first, first

    def get_seq_length(self) -> int:
        """Tokens stored."""
        return self.length

    def get_max_length(self) -> int:
        """Tokens that fit."""
        assert self.keys is not None
        return self.keys.shape[-2]


class Slab(msgspec.Struct, frozen=True, order=True):
    """A stretch of the pool: tokens `start` to `start + size`."""

    start: int
    size: int


class Pool:
    """Keys and values for `tokens` tokens, written once so that the memory is really taken."""

    def __init__(self, shapes: tuple[LayerShape, ...], tokens: int, device: torch.device) -> None:
        self.tokens = tokens
        self.bytes = tokens * sum(shape.token_bytes for shape in shapes)
        self.used = 0
        self._free = [Slab(0, tokens)]
        self._layers = [
            (
                torch.empty((1, shape.key[0], tokens, shape.key[1]), dtype=shape.dtype, device=device).fill_(0),
                torch.empty((1, shape.value[0], tokens, shape.value[1]), dtype=shape.dtype, device=device).fill_(0),
                shape.window,
            )
            for shape in shapes
        ]

    def reserve(self, size: int) -> Slab | None:
        """The first free stretch that is long enough; None where there is none now."""
        for index, free in enumerate(self._free):
            if free.size >= size:
                rest = Slab(free.start + size, free.size - size)
                self._free[index : index + 1] = [rest] if rest.size else []
                self.used += size
                return Slab(free.start, size)
        return None

    def release(self, slab: Slab) -> None:
        """Give a stretch back; it grows together with free neighbours."""
        self.used -= slab.size
        joined: list[Slab] = []
        for free in sorted([*self._free, slab]):
            if joined and joined[-1].start + joined[-1].size == free.start:
                joined[-1] = Slab(joined[-1].start, joined[-1].size + free.size)
            else:
                joined.append(free)
        self._free = joined

    def cache(self, slab: Slab) -> Cache:
        """An empty cache for transformers that lives in `slab`."""
        span = slice(slab.start, slab.start + slab.size)
        return Cache(
            layers=[SlabLayer(keys[:, :, span], values[:, :, span], window) for keys, values, window in self._layers]
        )
