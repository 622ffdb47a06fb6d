"""The pool: stretches never overlap, and everything comes back."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from draftmark.embedded.pool import LayerShape, Pool, Slab, probe_shapes

SHAPE = LayerShape(key=(2, 4), value=(1, 8), dtype=torch.float32, window=None)
TOKENS = 64


def pool() -> Pool:
    return Pool((SHAPE, SHAPE), TOKENS, torch.device("cpu"))


@given(st.lists(st.one_of(st.integers(1, TOKENS), st.integers(-8, -1)), max_size=40))
def test_stretches_never_overlap_and_all_come_back(steps: list[int]) -> None:
    """Positive steps reserve that many tokens; negative ones release one of the stretches held."""
    subject, held = pool(), list[Slab]()
    for step in steps:
        if step > 0:
            slab = subject.reserve(step)
            if slab:
                assert slab.size == step
                held.append(slab)
        elif held:
            subject.release(held.pop(step % len(held)))
        taken = [token for slab in held for token in range(slab.start, slab.start + slab.size)]
        assert len(set(taken)) == len(taken) == subject.used
        assert all(0 <= token < TOKENS for token in taken)
    for slab in held:
        subject.release(slab)
    assert subject.reserve(TOKENS) == Slab(0, TOKENS)


def test_a_full_pool_gives_nothing() -> None:
    subject = pool()
    assert subject.reserve(TOKENS)
    assert subject.reserve(1) is None


def test_bytes_are_those_of_the_tensors() -> None:
    subject = pool()
    layers = subject.cache(Slab(0, TOKENS)).layers
    assert subject.bytes == sum(layer.keys.nbytes + layer.values.nbytes for layer in layers) == 2 * TOKENS * 16 * 4


def test_two_requests_write_apart() -> None:
    subject = pool()
    caches = [subject.cache(Slab(0, 8)), subject.cache(Slab(8, 8))]
    for number, cache in enumerate(caches, start=1):
        cache.update(torch.full((1, 2, 8, 4), float(number)), torch.full((1, 1, 8, 8), float(number)), 1)
    for number, cache in enumerate(caches, start=1):
        keys, values = cache.layers[1].keys, cache.layers[1].values
        assert keys is not None
        assert keys.eq(number).all()
        assert values.eq(number).all()


def test_bytes_per_token_are_those_of_the_documentation(lively: dict[str, Any]) -> None:
    per_token = {name: sum(shape.token_bytes for shape in probe_shapes(model)) for name, model in lively.items()}
    assert per_token == {
        "gqa": 4 * (4 * 64 + 4 * 64) * 4,
        "mla": 2 * (512 + 64) * 4,
        "windowed": 3 * (2 * 32 + 2 * 32) * 4,
    }
