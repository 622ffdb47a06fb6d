"""Weights of drafts."""

import pytest

from draftmark.planner.draft_weights import draft_groups
from tests.zoo import zoo_model


def test_draft_layers_are_worked_out_from_the_last_layer() -> None:
    model = zoo_model("deepseek-ai/DeepSeek-R1")
    size = sum(group.bytes for group in draft_groups(model))
    assert size == pytest.approx(11.5e9, rel=0.05)  # one layer of experts in fp8, and the projection that joins it
    assert draft_groups(zoo_model("Qwen/Qwen3-32B")) == ()
