import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import BadInput
from draftmark.model import Gqa, WeightGroup
from draftmark.physics.memory import cached_elements, element_bytes, heads_per_rank, token_bytes, weight_bytes
from draftmark.units import Bytes
from tests.zoo import zoo_model


def test_worked_examples() -> None:
    assert token_bytes(zoo_model("deepseek-ai/DeepSeek-V3"), 2) == 70_272
    assert token_bytes(zoo_model("meta-llama/Meta-Llama-3.1-70B"), 1) == 163_840
    assert token_bytes(zoo_model("meta-llama/Meta-Llama-3.1-70B"), 2, ranks=8) == 40_960
    assert heads_per_rank(8, 16) == 1


def test_latents_are_not_divided() -> None:
    model = zoo_model("deepseek-ai/DeepSeek-V3")
    assert token_bytes(model, 2, ranks=8) == token_bytes(model, 2)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(BadInput, match="int3"):
        element_bytes("int3")


@given(heads=st.sampled_from([1, 2, 4, 8, 16]), ranks=st.sampled_from([1, 2, 4, 8, 16]))
def test_ranks_together_hold_at_least_everything(heads: int, ranks: int) -> None:
    mixer = Gqa(heads=16, kv_heads=heads, head_dim=64, value_head_dim=32)
    assert cached_elements(mixer, ranks) * ranks >= cached_elements(mixer)


def test_weights_divide_by_their_split() -> None:
    groups = tuple(
        WeightGroup(role="attention", layer=0, bytes=Bytes(800), parameters=400, dtype="BF16", split=split)
        for split in ("tensor", "heads", "none")
    )
    assert weight_bytes(groups, 8, kv_heads=2) == 100 + 400 + 800
    assert weight_bytes(groups, 1, kv_heads=2) == 2400
