"""The pool: stretches never overlap, and everything comes back."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.cache_utils import DynamicLayer

from draftmark.embedded.pool import Pool, Slab, probe, token_bytes

TOKENS = 64


def layer() -> DynamicLayer:
    """Two heads of 4 elements for the key of its one token, one head of 8 for the value."""
    made = DynamicLayer()
    made.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 1, 1, 8))
    return made


def pool() -> Pool:
    return Pool([layer(), layer()], TOKENS)


@given(st.lists(st.one_of(st.integers(1, TOKENS), st.integers(-8, -1)), max_size=40))
def test_stretches_never_overlap_and_all_come_back(steps: list[int]) -> None:
    """Positive steps reserve that many tokens; negative ones release one of the stretches held."""
    subject, held = pool(), list[Slab]()
    for step in steps:
        if step > 0:
            slab = subject.reserve(step)
            if slab:
                assert len(slab.span) == step
                held.append(slab)
        elif held:
            subject.release(held.pop(step % len(held)))
        taken = [token for slab in held for token in slab.span]
        assert len(set(taken)) == len(taken) == subject.used
        assert all(0 <= token < TOKENS for token in taken)
    for slab in held:
        subject.release(slab)
    whole = subject.reserve(TOKENS)
    assert whole is not None
    assert whole.span == range(TOKENS)


def test_a_full_pool_gives_nothing() -> None:
    subject = pool()
    assert subject.reserve(TOKENS)
    assert subject.reserve(1) is None


def test_bytes_are_those_of_the_tensors() -> None:
    subject = pool()
    slab = subject.reserve(TOKENS)
    assert slab is not None
    assert subject.bytes == sum(layer.keys.nbytes + layer.values.nbytes for layer in slab.layers) == 2 * TOKENS * 16 * 4


def test_two_requests_write_apart() -> None:
    subject = pool()
    caches = [slab for slab in (subject.reserve(8), subject.reserve(8)) if slab is not None]
    assert len(caches) == 2
    for number, cache in enumerate(caches, start=1):
        cache.update(torch.full((1, 2, 8, 4), float(number)), torch.full((1, 1, 8, 8), float(number)), 1)
    for number, cache in enumerate(caches, start=1):
        keys, values = cache.layers[1].keys, cache.layers[1].values
        assert keys is not None
        assert keys.eq(number).all()
        assert values.eq(number).all()


def test_bytes_per_token_are_those_of_the_documentation(lively: dict[str, Any]) -> None:
    per_token = {name: token_bytes(probe(model)) for name, model in lively.items()}
    assert per_token == {
        "gqa": 4 * (4 * 64 + 4 * 64) * 4,
        "mla": 2 * (512 + 64) * 4,
        "windowed": 3 * (2 * 32 + 2 * 32) * 4,
    }
