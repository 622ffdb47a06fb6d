"""Layouts: the one over all GPUs given, what divides and what does not, and those that the solver tries."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import laid_out, plan
from draftmark.planner.layout import check_division
from draftmark.planner.layouts import changes, layouts, refusal, whole_caches
from tests.zoo import rows, zoo_model

NOTHING: frozenset[str] = frozenset()
REFUSED = ("DeepSeek-V4", "Kimi-K3")


def asked(engine: EngineName = "sglang", **parallel: object) -> Configuration:
    return Configuration(engine=engine, model="m", parallel=Parallel(**parallel))  # type: ignore[arg-type]


def models() -> list[str]:
    return [name for name in rows() if not any(part in name for part in REFUSED)]


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "nvidia/Kimi-K2.6-NVFP4", "openai/gpt-oss-120b"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_all_gpus_given_are_used(name: str, engine: EngineName, count: int) -> None:
    found, reasons = laid_out(zoo_model(name), asked(engine), parse_machine(f"h200:{count}"), NOTHING)
    assert found.parallel == Parallel(tensor=count)
    (reason,) = reasons
    assert (reason.field, reason.value) == ("tp", str(count))
    assert reason.why == ("one GPU given" if count == 1 else f"all {count} GPUs given")


@pytest.mark.parametrize(
    ("name", "count", "stages", "ranks", "why"),
    [
        ("Qwen/Qwen3.5-27B", 5, 1, 4, "24 attention heads do not divide by 5 tensor-parallel ranks; of 5 GPUs 1 stay"),
        ("Qwen/Qwen3-8B", 7, 1, 4, "32 attention heads do not divide by 7 tensor-parallel ranks; of 7 GPUs 3 stay"),
        ("Qwen/Qwen3-8B", 8, 2, 4, "all 8 GPUs given in 2 stages"),
        ("Qwen/Qwen3-32B-FP8", 16, 1, 8, "25600 columns of a layer over 16 tensor-parallel ranks are no multiple of"),
    ],
)
def test_the_most_ranks_that_divide(name: str, count: int, stages: int, ranks: int, why: str) -> None:
    fixed = frozenset({"pipeline"}) if stages > 1 else NOTHING
    found, (reason,) = laid_out(zoo_model(name), asked(pipeline=stages), parse_machine(f"h200:{count}"), fixed)
    assert found.parallel == Parallel(tensor=ranks, pipeline=stages)
    assert why in reason.why


@pytest.mark.parametrize("name", ["Qwen/Qwen3-235B-A22B-FP8", "MiniMaxAI/MiniMax-M2.5"])
def test_whole_experts_where_their_slices_cut_quantization_blocks(name: str) -> None:
    """1,536 columns over 8 ranks are 192, no multiple of 128: both engines refuse that and take expert parallelism."""
    found, reasons = laid_out(zoo_model(name), asked(), parse_machine("h200:8"), NOTHING)
    assert found.parallel == Parallel(tensor=8, expert=8)
    assert [reason.field for reason in reasons] == ["tp", "ep"]
    assert "no multiple of the quantization's 128" in reasons[1].why
    with pytest.raises(BadInput, match="expert parallelism"):
        plan(zoo_model(name), asked(tensor=8), parse_machine("h200:8"))
    assert plan(zoo_model(name), found, parse_machine("h200:8")).gpus == 8


@pytest.mark.parametrize("fixed", [{"tensor"}, {"tensor", "pipeline"}, {"data"}, {"expert"}])
def test_what_the_user_set_stays(fixed: set[str]) -> None:
    wanted = asked(tensor=2)
    assert laid_out(zoo_model("Qwen/Qwen3-8B"), wanted, parse_machine("h200:8"), frozenset(fixed)) == (wanted, ())


def test_the_embedded_engine_stays_on_one_gpu() -> None:
    wanted = asked("embedded")
    assert laid_out(zoo_model("Qwen/Qwen3-8B"), wanted, parse_machine("h200:8"), NOTHING) == (wanted, ())


def test_more_stages_than_layers_are_told_how_many_there_may_be() -> None:
    with pytest.raises(BadInput, match="36 layers are fewer than 40 stages; choose at most 36 stages"):
        plan(zoo_model("Qwen/Qwen3-8B"), asked(pipeline=40), parse_machine("h200:40"))


@settings(deadline=None)
@given(name=st.sampled_from(models()), count=st.integers(1, 16), engine=st.sampled_from(["sglang", "vllm"]))
def test_every_layout_that_is_tried_can_work(name: str, count: int, engine: EngineName) -> None:
    model, machine = zoo_model(name), parse_machine(f"h200:{count}")
    base, _ = laid_out(model, asked(engine), machine, NOTHING)
    tried = layouts(model, base, machine, NOTHING, concurrency=4)
    assert tried[0].parallel == base.parallel
    assert len({msgspec.json.encode(one.parallel) for one in tried}) == len(tried)
    for one in tried:
        check_division(model, msgspec.structs.replace(base, parallel=one.parallel))
        assert one.parallel.gpus <= count
        assert one.name == "own" or one.cost or one.name == "ranks"


@settings(deadline=None)
@given(name=st.sampled_from(models()), count=st.sampled_from([2, 4, 8]), data=st.data())
def test_no_layout_changes_what_is_fixed(name: str, count: int, data: st.DataObject) -> None:
    model, machine = zoo_model(name), parse_machine(f"h200:{count}")
    fixed = data.draw(st.frozensets(st.sampled_from(["tensor", "pipeline", "data", "expert"])))
    base, _ = laid_out(model, asked(), machine, fixed)
    for one in layouts(model, base, machine, fixed, concurrency=4):
        assert all(getattr(one.parallel, field) == getattr(base.parallel, field) for field in fixed)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-32B"])
def test_the_flags_named_lead_to_the_layout(engine: EngineName, name: str) -> None:
    """What `changes` says, read by the engine's own table, is the layout; so a user can type it."""
    parse = (sglang_flags if engine == "sglang" else vllm_flags).parse_flags
    model, machine = zoo_model(name), parse_machine("h200:8")
    for one in layouts(model, asked(engine), machine, NOTHING, concurrency=4):
        words = [
            word for change in changes(asked(engine), one.parallel) for word in (change.flag, change.value) if word
        ]
        assert parse(tuple(words)).configuration.parallel == one.parallel


def test_caches_are_whole_for_latents_and_where_heads_are_few() -> None:
    kinds: list[tuple[Model, int, bool]] = [
        (zoo_model("deepseek-ai/DeepSeek-V3"), 2, True),
        (zoo_model("Qwen/Qwen3-235B-A22B"), 4, False),
        (zoo_model("Qwen/Qwen3-235B-A22B"), 8, True),
    ]
    for model, ranks, whole in kinds:
        assert whole_caches(model, ranks) is whole


def test_dp_attention_is_tried_where_it_divides_the_cache() -> None:
    def groups(name: str, gpu: str, engine: EngineName = "sglang") -> set[int]:
        model, machine = zoo_model(name), parse_machine(gpu)
        base, _ = laid_out(model, asked(engine), machine, NOTHING)
        tried = layouts(model, base, machine, NOTHING, concurrency=32)
        return {one.parallel.data for one in tried if one.parallel.data_attention}

    assert groups("deepseek-ai/DeepSeek-V3", "h200:8") == {2, 4, 8}
    assert groups("Qwen/Qwen3-32B", "h200:8") == set(), "heads enough for every rank: nothing to gain"
    assert groups("deepseek-ai/DeepSeek-V3", "h200:8", "vllm") == set(), "vLLM has data parallelism instead"


@pytest.mark.parametrize(
    ("parallel", "cause"),
    [
        (Parallel(tensor=3), "attention heads do not divide by 3"),
        (Parallel(tensor=8, expert=7), "experts do not divide by 7"),
        (Parallel(pipeline=99), "layers are fewer than 99 stages"),
        (Parallel(tensor=8, data=3, data_attention=True), "do not divide by 3 attention groups"),
        (Parallel(tensor=8, decode_context=3), "8 ranks do not divide by 3"),
    ],
)
def test_why_a_layout_cannot_work(parallel: Parallel, cause: str) -> None:
    found = refusal(zoo_model("deepseek-ai/DeepSeek-V3"), asked(), parallel)
    assert found is not None
    assert cause in found
