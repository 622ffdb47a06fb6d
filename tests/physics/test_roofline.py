"""Formulas against numbers worked out by hand or published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.model import Experts, Gqa, Layer, Model, WeightGroup, WeightRole
from draftmark.physics.roofline import effective_bandwidth, expected_experts, memory_time, weights_read
from draftmark.units import Bytes, BytesPerSecond, Seconds, Tokens


def model(tied: bool = False) -> Model:
    def group(role: WeightRole, size: int) -> WeightGroup:
        return WeightGroup(role=role, layer=None, bytes=Bytes(size), parameters=size // 2, dtype="bfloat16")

    return Model(
        name="m",
        architecture="X",
        source="test",
        layers=(Layer(mixer=Gqa(heads=4, kv_heads=2, head_dim=8, value_head_dim=8), experts=True),),
        hidden_size=32,
        intermediate_size=64,
        vocabulary=100,
        context=Tokens(1000),
        dtype="bfloat16",
        tied_embeddings=tied,
        weights=(group("embedding", 1000), group("attention", 300), group("experts", 256_000), group("vision", 7)),
        exact_weights=True,
        experts=Experts(count=256, active=8, shared=0, intermediate_size=8),
    )


def test_experts_of_deepseek_v3() -> None:
    assert expected_experts(256, 8, 1) == pytest.approx(8)
    assert expected_experts(256, 8, 16) == pytest.approx(101.9, abs=0.1)


@given(tokens=st.integers(1, 10_000), active=st.integers(1, 64))
def test_no_step_reads_more_experts_than_there_are(tokens: int, active: int) -> None:
    assert active - 1e-6 <= expected_experts(64, active, tokens) <= 64


def test_a_step_reads_the_experts_it_chose_and_the_rows_it_looks_up() -> None:
    assert weights_read(model(), 1) == 300 + 8000 + 10
    assert weights_read(model(tied=True), 1) == 300 + 8000 + 1000
    assert weights_read(model(), 1, tensor_parallel=2) == 4155


def test_the_published_cliff() -> None:
    """Kimi K2.6, 61 layers x 1,152 B a token, 4.98 us a token of depth: about 14 GB/s."""
    assert effective_bandwidth(Bytes(61 * 1152), Seconds(4.98e-6)) == pytest.approx(14.1e9, rel=0.01)
    assert memory_time(Bytes(61 * 1152), BytesPerSecond(1.8e12)) == pytest.approx(39e-9, rel=0.01)
