import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.configuration import Configuration, Parallel
from draftmark.machine.catalogue import parse_machine
from draftmark.planner.layout import attention_ranks, rank_weights, stages, vllm_stages
from draftmark.units import GIB
from tests.zoo import zoo_model

H200 = parse_machine("h200").device


def asked(**parallel: object) -> Configuration:
    return Configuration(
        engine="sglang",
        model="m",
        dtype="bfloat16",
        parallel=Parallel(**parallel),  # type: ignore[arg-type]
    )


@given(layers=st.integers(1, 130), pipeline=st.integers(1, 16))
def test_stages_hold_every_layer_once(layers: int, pipeline: int) -> None:
    for split in (stages, vllm_stages):
        if pipeline > layers:
            continue
        found = split(layers, pipeline)
        assert [stage.start for stage in found[1:]] == [stage.end for stage in found[:-1]]
        assert (found[0].start, found[-1].end, len(found)) == (0, layers, pipeline)
        sizes = [stage.end - stage.start for stage in found]
        assert max(sizes) - min(sizes) <= 1


def test_a_public_rank_of_deepseek() -> None:
    """DeepSeek-R1 in fp8 at tensor parallelism 8: about 79 GiB a GPU, the replicated projections included."""
    model = zoo_model("deepseek-ai/DeepSeek-R1")
    (stage,) = stages(61, 1)
    whole = sum(group.bytes for group in model.weights)
    one = rank_weights(model, asked(tensor=8), stage, H200)
    assert whole / 8 < one < whole / 8 * 1.05
    assert one == pytest.approx(79.5 * GIB, rel=0.02)


def test_attention_in_groups_keeps_its_weights_whole() -> None:
    model = zoo_model("deepseek-ai/DeepSeek-R1")
    (stage,) = stages(61, 1)
    grouped = asked(tensor=8, data=8, data_attention=True)
    assert attention_ranks(grouped.parallel) == 1
    assert rank_weights(model, grouped, stage, H200) > rank_weights(model, asked(tensor=8), stage, H200) + 8 * GIB


def test_stages_together_hold_the_model() -> None:
    model = zoo_model("Qwen/Qwen3-32B")
    whole = rank_weights(model, asked(), stages(64, 1)[0], H200)
    parts = sum(rank_weights(model, asked(), stage, H200) for stage in stages(64, 3))
    assert parts == whole
