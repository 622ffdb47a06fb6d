import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Plan, plan
from draftmark.planner.layout import stages
from draftmark.planner.sglang.cells import cells, states
from draftmark.planner.sglang.defaults import prefill_sizes, resolve
from draftmark.planner.sglang.pools import divide, multimodal_reserve, state_pool
from draftmark.planner.sglang.rules import rules_for
from draftmark.units import GIB, Tokens
from tests.zoo import zoo_model


def planned(name: str, gpu: str, **fields: object) -> Plan:
    wanted = Configuration(engine="sglang", model=name, **fields)  # type: ignore[arg-type]
    return plan(zoo_model(name), wanted, parse_machine(gpu))


# Fractions that servers printed or that public threads report for these GPUs, and those that the rules give elsewhere.
@pytest.mark.parametrize(
    ("gpu", "name", "version", "tensor", "fraction"),
    [
        ("h100", "Qwen/Qwen3-0.6B", "0.5.23", 1, 0.830),
        ("h100:2", "Qwen/Qwen3-8B", "0.5.23", 2, 0.828),
        ("h200", "meta-llama/Meta-Llama-3.1-8B", "0.5.15.post1", 1, 0.903),
        ("rtx-4090", "Qwen/Qwen3-0.6B", "0.5.15.post1", 1, 0.833),
        ("l40s", "Qwen/Qwen3-8B", "0.5.23", 1, 0.843),
    ],
)
def test_default_fractions(gpu: str, name: str, version: str, tensor: int, fraction: float) -> None:
    machine = parse_machine(gpu)
    wanted = Configuration(engine="sglang", model=name, parallel=Parallel(tensor=tensor))
    full, reasons = resolve(zoo_model(name), wanted, machine.device, rules_for(version))
    assert full.memory_fraction == pytest.approx(fraction, abs=0.0015)
    assert {reason.field for reason in reasons} >= {"memory_fraction", "chunk", "graph_batch"}


def test_captured_prefill_shapes() -> None:
    assert (prefill_sizes(8192), prefill_sizes(16384)) == (58, 74)


def test_a_real_start_on_an_h200() -> None:
    """Llama-3.1-8B with 0.5.15.post1 and nothing asked for printed 905,795 tokens."""
    found = planned("meta-llama/Meta-Llama-3.1-8B", "h200", version="0.5.15.post1")
    assert found.pool.tokens == pytest.approx(905_795, rel=0.002)
    assert found.pool.low is not None
    assert found.pool.high is not None
    assert found.pool.low < 905_795 < found.pool.high
    assert sum(entry.bytes for entry in found.ledgers[0].entries) == found.ledgers[0].capacity


def test_states_and_pool_of_a_real_hybrid_start() -> None:
    """Qwen3.8-27B FP8 on an H100 at 0.85: 50.01 of 78.48 GiB left, 124 slots, 330,323 tokens (sizes of Qwen3.6-27B).

    0.06 GiB more are gone when the pool is sized than when the weights had been loaded, half a slot's worth.
    """
    model = zoo_model("nvidia/Qwen3.6-27B-NVFP4")
    wanted = Configuration(engine="sglang", model="m", kv_dtype="bfloat16", max_running=32, page=Tokens(1))
    rules, (stage,) = rules_for("0.5.20"), stages(64, 1)
    found, held = cells(model, wanted, stage, rules, None), states(model, wanted, stage)
    assert held is not None
    budget = (50.01 - 78.48 * 0.15 - 0.06) * GIB - multimodal_reserve(rules, vision=True)
    slots, taken = state_pool(budget, held, wanted, rules)
    assert slots == 124
    assert taken == pytest.approx((0.34 + 17.58) * GIB, rel=0.01)
    assert divide(budget, found, held, wanted, rules).tokens == pytest.approx(330_323, rel=0.001)


def test_bytes_a_token_in_public_logs() -> None:
    """GLM-5: 29.32 GiB for 314,304 tokens in bf16, 186.77 GiB for 3,262,823 in fp8; one rank of eight."""
    model, (stage,) = zoo_model("zai-org/GLM-5-FP8"), stages(78, 1)
    rules = rules_for("0.5.15.post1")
    for dtype, per_token in (("bfloat16", 29.32 * GIB / 314_304), ("fp8_e4m3", 186.77 * GIB / 3_262_823)):
        wanted = Configuration(engine="sglang", model="m", kv_dtype=dtype, parallel=Parallel(tensor=8))
        assert cells(model, wanted, stage, rules, None).stored == pytest.approx(per_token, rel=2e-4)


def test_the_overrun_of_selectors_in_fp8_is_said() -> None:
    wanted = {"parallel": Parallel(tensor=8), "kv_dtype": "fp8_e4m3", "memory_fraction": 0.9}
    old = planned("zai-org/GLM-5-FP8", "b200:8", version="0.5.15.post1", **wanted)
    new = planned("zai-org/GLM-5-FP8", "b200:8", version="0.5.23", **wanted)
    assert old.pool.tokens > new.pool.tokens
    assert any("overruns its budget" in note for note in old.notes)
    assert not any("overruns" in note for note in new.notes)


def test_windowed_layers_have_a_pool_of_their_own() -> None:
    found = planned("openai/gpt-oss-20b", "h200", version="0.5.15.post1")
    pool = next(entry for entry in found.ledgers[0].entries if entry.account == "pool")
    assert f"windowed layers hold {int(found.pool.tokens * 0.8):,}" in pool.why


def test_a_draft_takes_weights_and_cache() -> None:
    drafting = Speculative(algorithm="EAGLE", steps=3, top_k=1, draft_tokens=4)
    plain = planned("deepseek-ai/DeepSeek-V3", "h200:8", parallel=Parallel(tensor=8), version="0.5.15.post1")
    drafted = planned(
        "deepseek-ai/DeepSeek-V3", "h200:8", parallel=Parallel(tensor=8), version="0.5.15.post1", speculative=drafting
    )
    assert drafted.pool.tokens < plain.pool.tokens
    accounts = {entry.account for entry in drafted.ledgers[0].entries}
    assert {"draft weights", "draft pool"} <= accounts
    assert drafted.configuration.max_running == 48


def test_uneven_stages_take_the_smallest_pool() -> None:
    found = planned("deepseek-ai/DeepSeek-V3", "h200:16", parallel=Parallel(tensor=8, pipeline=2))
    assert len(found.ledgers) == 2
    assert found.gpus == 16
    assert found.ledgers[0].amount("pool") != found.ledgers[1].amount("pool")


def test_risks_point_the_right_way() -> None:
    starved = planned("Qwen/Qwen3-32B", "h200", memory_fraction=0.4)
    risk = next(risk for risk in starved.risks if risk.phase == "pool")
    assert risk.probability > 0.99
    assert "raise the fraction" in risk.why
    tight = planned("Qwen/Qwen3-8B", "h200", memory_fraction=0.99)
    risk = next(risk for risk in tight.risks if risk.phase == "prefill")
    assert risk.probability > 0.5
    assert "lower the fraction" in risk.why
    assert all(risk.probability < 0.05 for risk in planned("Qwen/Qwen3-8B", "h200").risks)


@pytest.mark.parametrize(
    ("parallel", "gpu", "message"),
    [
        (Parallel(tensor=3), "h200:8", "32 attention heads do not divide by 3"),
        (Parallel(tensor=8, pipeline=2), "h200:8", "takes 16 GPUs, there are 8"),
        (Parallel(tensor=4, data=3, data_attention=True), "h200:8", "4 ranks do not divide by 3"),
        (Parallel(tensor=2, data=3, data_attention=True), "h200:8", "2 ranks do not divide by 3"),
    ],
)
def test_layouts_that_cannot_work(parallel: Parallel, gpu: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        planned("Qwen/Qwen3-8B", gpu, parallel=parallel)


def test_experts_and_stages_that_cannot_work() -> None:
    with pytest.raises(BadInput, match="128 experts do not divide by 3"):
        planned("Qwen/Qwen3-30B-A3B", "h200:4", parallel=Parallel(tensor=4, expert=3))
    with pytest.raises(BadInput, match="fewer than 40 stages"):
        planned("Qwen/Qwen3-8B", "h200:40", parallel=Parallel(pipeline=40))


def test_versions() -> None:
    with pytest.raises(BadInput, match="not a version"):
        planned("Qwen/Qwen3-8B", "h200", version="newest")
    with pytest.raises(BadInput, match=r"older than 0\.4\.6"):
        planned("Qwen/Qwen3-8B", "h200", version="0.3.0")
    with pytest.raises(BadInput, match=r"before 0\.5\.3 is not kept"):
        planned("Qwen/Qwen3-8B", "h200", version="0.5.0")
    assert planned("Qwen/Qwen3-8B", "h200", version="0.5.0", memory_fraction=0.85).fits


def test_caches_that_were_not_read_are_refused() -> None:
    with pytest.raises(BadInput, match="keys of a block selector"):
        planned("nvidia/MiniMax-M3-NVFP4", "b200:8", parallel=Parallel(tensor=8))


@pytest.mark.parametrize(
    ("name", "gpu", "flags", "page", "backend"),
    [
        ("Qwen/Qwen3-32B", "h200", (), 1, "fa3"),
        ("Qwen/Qwen3-32B", "b200", (), 64, "trtllm_mha"),
        ("Qwen/Qwen3-32B", "rtx-4090:8", (), 1, "flashinfer"),
        ("openai/gpt-oss-20b", "rtx-4090", (), 1, "triton"),
        ("deepseek-ai/DeepSeek-V3", "b200:8", (), 64, "trtllm_mla"),
        ("deepseek-ai/DeepSeek-V3", "b200:8", ("--attention-backend", "triton"), 1, None),
        ("deepseek-ai/DeepSeek-V3.2", "h200:8", (), 64, "dsa"),
        ("deepseek-ai/DeepSeek-V3", "h200:8", ("--attention-backend", "cutlass_mla"), 128, None),
    ],
)
def test_the_page_is_that_of_the_attention_backend(
    name: str, gpu: str, flags: tuple[str, ...], page: int, backend: str | None
) -> None:
    """What is filled in names the backend that was not asked for."""
    count = int(gpu.partition(":")[2] or 1)
    found = planned(name, gpu, flags=flags, parallel=Parallel(tensor=count))
    assert found.configuration.page == page
    assert [one.value for one in found.reasons if one.field == "attention backend"] == ([backend] if backend else [])


@pytest.mark.parametrize(
    ("architecture", "before", "since"),
    [
        ("MiMoV2FlashForCausalLM", "0.5.6.post2", "0.5.7"),
        ("GptOssForCausalLM", "0.5.7", "0.5.8.post1"),
        ("Step3p5ForCausalLM", "0.5.8.post1", "0.5.9"),
        ("Gemma4ForConditionalGeneration", "0.5.10.post1", "0.5.11"),
        ("Step3p7ForConditionalGeneration", "0.5.12.post1", "0.5.13.post1"),
    ],
)
def test_windowed_layers_got_a_pool_of_their_own_with_a_version(architecture: str, before: str, since: str) -> None:
    assert not rules_for(before).splits_windows(architecture)
    assert rules_for(since).splits_windows(architecture)
    assert not rules_for(since).splits_windows("Step3p7FlashForCausalLM")


@pytest.mark.parametrize("gpu", ["rtx-pro-6000", "h100", "h200", "b200", "a100"])
@pytest.mark.parametrize("name", ["Qwen/Qwen3.5-27B", "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-8B"])
def test_a_fraction_that_is_filled_in_is_shown_in_a_few_digits(name: str, gpu: str) -> None:
    """A vision tower's factor leaves a fraction of sixteen digits; the plan counts with it and shows six at most."""
    found = plan(zoo_model(name), Configuration(engine="sglang", model=name), parse_machine(gpu))
    shown = next(reason.value for reason in found.reasons if reason.field == "memory_fraction")
    assert len(shown) <= len("0.123456")
    assert float(shown) == pytest.approx(found.configuration.memory_fraction, abs=1e-6)
