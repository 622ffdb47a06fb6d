import re
from typing import Any

import msgspec
import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.engines.versions import parse_version
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Solution, Target, plan, solve
from draftmark.planner.candidate import LIKELY, SAFE, SURE, Given
from draftmark.planner.combinations import CONDITIONS, broken, rules
from draftmark.planner.fraction import fraction_step
from draftmark.planner.knobs import cheap, dear, drafts
from draftmark.planner.layouts import layouts
from draftmark.planner.search import search
from draftmark.planner.sglang.rules import NEWEST
from draftmark.units import Tokens
from tests.zoo import zoo_model

KIMI = "nvidia/Kimi-K2.6-NVFP4"
DRAFT = Speculative(algorithm="EAGLE", steps=3, top_k=1, draft_tokens=4)
TREE = Speculative(algorithm="EAGLE", steps=3, top_k=4, draft_tokens=8)


def target(context: int, output: int = 4000, concurrency: int = 1) -> Target:
    return Target(context=Tokens(context), output=Tokens(output), concurrency=concurrency)


def solved(name: str, gpu: str, wanted: Target, *, fixed: tuple[str, ...] = (), **fields: Any) -> Solution:
    asked = Configuration(engine=fields.pop("engine", "sglang"), model=name, **fields)
    model = zoo_model(name)
    draft = msgspec.structs.replace(model, layers=model.layers[-1:], weights=()) if asked.speculative else None
    return solve(model, asked, parse_machine(gpu), wanted, fixed=frozenset(fixed), draft=draft)


def flags(found: Solution) -> dict[str, str | None]:
    """What the first configuration changes."""
    assert found.first is not None
    return {change.flag: change.value for change in found.first.changes}


def test_what_is_proposed_reaches_the_target_and_is_safe() -> None:
    found = solved(KIMI, "rtx-pro-6000:8", target(200_000), parallel=Parallel(tensor=8), speculative=DRAFT)
    assert found.first is not None
    for one in found.candidates:
        if one.good:
            assert one.plan.reach is not None
            assert one.plan.reach.available >= one.plan.reach.needed
            assert one.probability >= SURE
            assert one.plan.worst_risk <= SAFE
    weights = [one.weight for one in found.candidates if one.good]
    assert weights == sorted(weights)


def test_nothing_is_changed_where_nothing_must_be() -> None:
    found = solved("Qwen/Qwen3-8B", "h200", target(30_000))
    assert found.first is not None
    assert found.first.changes == ()
    assert found.first.asked == Configuration(engine="sglang", model="Qwen/Qwen3-8B")


def test_a_starved_pool_asks_for_a_higher_fraction() -> None:
    found = solved("Qwen/Qwen3-32B", "h200", target(35_000), memory_fraction=0.45)
    assert found.first is not None
    (change,) = [change for change in found.first.changes if change.flag == "--mem-fraction-static"]
    assert change.direction == "raise"
    assert found.first.plan.configuration.memory_fraction is not None
    assert found.first.plan.configuration.memory_fraction > 0.45


def test_a_pool_that_leaves_no_headroom_asks_for_a_lower_fraction() -> None:
    """Two 24 GB cards hold gpt-oss-20b and more than the target, at a utilization that leaves too little beside it."""
    found = solved("openai/gpt-oss-20b", "rtx-3090:2", target(100_000), engine="vllm", parallel=Parallel(tensor=2))
    assert found.asked.worst_risk > SAFE
    first = found.first
    assert first is not None
    assert [change.direction for change in first.changes if change.flag == "--gpu-memory-utilization"] == ["lower"]
    assert first.good
    assert found.otherwise is None


def test_the_reserve_and_pages_count() -> None:
    plain = solved("Qwen/Qwen3-8B", "h200", target(30_000, 1_000), page=Tokens(64))
    assert plain.asked.reach is not None
    assert plain.asked.reach.needed == -(-31_000 // 64) * 64
    drafted = solved(
        "deepseek-ai/DeepSeek-V3", "h200:8", target(30_000, 1_000), parallel=Parallel(tensor=8), speculative=DRAFT
    )
    assert drafted.asked.reach is not None
    assert drafted.asked.reach.needed == 31_000 + 2 * 4


def test_latents_are_said_not_to_divide() -> None:
    layout = {"parallel": Parallel(tensor=8), "fixed": ("tensor", "data")}
    found = solved(KIMI, "rtx-pro-6000:8", target(200_000, concurrency=4), engine="vllm", **layout)  # type: ignore[arg-type]
    assert any("holds the whole latent" in note for note in found.notes)
    assert flags(found).keys() & {"--decode-context-parallel-size", "--kv-cache-dtype"}


def test_where_nothing_reaches_it_one_sentence_says_what_would() -> None:
    found = solved("Qwen/Qwen3-32B", "h100", target(30_000, concurrency=200))
    assert found.first is None
    assert found.otherwise is not None
    assert found.otherwise.count(".") == 1
    assert "of them would" in found.otherwise


@pytest.mark.parametrize(
    ("wanted", "fields", "message"),
    [
        (target(100_000), {}, "beyond the model's own 40960"),
        (target(30_000), {"context": Tokens(16_000)}, "contradicts a context limited to 16000"),
        (target(30_000), {"pool_tokens": Tokens(16_000)}, "contradicts a pool limited to 16000"),
    ],
)
def test_targets_that_cannot_be(wanted: Target, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        solved("Qwen/Qwen3-32B", "h200", wanted, **fields)


def test_no_proposal_breaks_a_rule() -> None:
    for version in ("0.5.15.post1", NEWEST):
        found = solved(
            KIMI, "rtx-pro-6000:8", target(200_000), parallel=Parallel(tensor=8), speculative=DRAFT, version=version
        )
        for one in found.candidates:
            assert broken(one.asked, zoo_model(KIMI)) == ()


def test_rules_name_known_conditions_and_a_source() -> None:
    assert len(rules()) >= 8
    for rule in rules():
        assert {rule.one, rule.two} <= set(CONDITIONS)
        assert rule.source
        assert parse_version(rule.since)
        assert rule.until is None or parse_version(rule.until) > parse_version(rule.since)


@pytest.mark.parametrize(
    ("changes", "pair"),
    [
        ({"parallel": Parallel(tensor=8, decode_context=2), "speculative": DRAFT}, "speculation"),
        (
            {
                "parallel": Parallel(tensor=8),
                "environment": (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),),
            },
            "custom all-reduce",
        ),
        ({"flags": ("--attention-backend", "flashmla"), "speculative": TREE}, "pages"),
        ({"flags": ("--attention-backend", "aiter"), "page": Tokens(64), "speculative": TREE}, "pages"),
    ],
)
def test_known_conflicts_are_found(changes: dict[str, object], pair: str) -> None:
    asked = Configuration(engine="sglang", model="m", version="0.5.15.post1", **changes)  # type: ignore[arg-type]
    assert pair in {rule.two for rule in broken(asked, zoo_model(KIMI))}


@pytest.mark.parametrize(
    ("gpu", "fields", "clash"),
    [
        ("h200", {"page": Tokens(64)}, False),  # fa3 on Hopper walks trees over pages
        ("rtx-pro-6000", {"page": Tokens(64)}, False),
        ("b200", {}, True),  # trtllm_mla by default
        ("b200", {"flags": ("--attention-backend", "triton"), "page": Tokens(64)}, False),
        ("b200", {"flags": ("--attention-backend", "flashinfer")}, False),
        ("h200", {"flags": ("--attention-backend", "cutlass_mla")}, True),
    ],
)
def test_trees_clash_with_the_pages_of_the_backend_that_is_taken(gpu: str, fields: dict[str, Any], clash: bool) -> None:
    asked = Configuration(engine="sglang", model="m", parallel=Parallel(tensor=8), speculative=TREE, **fields)
    found = plan(zoo_model("deepseek-ai/DeepSeek-V3"), asked, parse_machine(f"{gpu}:8"))
    assert any("trees and pages" in conflict for conflict in found.conflicts) is clash
    assert not (clash and found.fits)


@pytest.mark.parametrize(
    ("gpu", "fields", "change"),
    [
        ("h200", {"flags": ("--attention-backend", "flashmla")}, ("--attention-backend", "triton")),
        ("b200", {}, ("--attention-backend", "triton")),
        ("h200", {"flags": ("--attention-backend", "aiter"), "page": Tokens(64)}, ("--page-size", "1")),
    ],
)
def test_a_tree_keeps_its_draft_where_pages_or_backend_can_give_way(
    gpu: str, fields: dict[str, Any], change: tuple[str, str]
) -> None:
    found = solved(
        "deepseek-ai/DeepSeek-V3", f"{gpu}:8", target(30_000), parallel=Parallel(tensor=8), speculative=TREE, **fields
    )
    assert flags(found)[change[0]] == change[1]
    assert found.first is not None
    assert found.first.asked.speculative == TREE
    assert found.asked.conflicts


def test_cheap_knobs_come_before_dear_ones() -> None:
    """What fits by fraction, segments, chunk and fewer requests keeps its draft, its cache's dtype and its layout."""
    found = solved(
        "moonshotai/Kimi-K2-Instruct", "h200:8", target(100_000), parallel=Parallel(tensor=8), fixed=("tensor",)
    )
    assert found.first is not None
    assert found.first.asked.parallel == Parallel(tensor=8)
    assert found.first.asked.kv_dtype is None
    assert flags(found).keys() <= {
        "--mem-fraction-static", "--max-running-requests", "--cuda-graph-max-bs-decode", "--chunked-prefill-size",
        "--context-length", "PYTORCH_CUDA_ALLOC_CONF",
    }  # fmt: skip
    assert any(one.asked.parallel.decode_context > 1 for one in found.shown), "dear ones stay in sight"


@pytest.mark.parametrize("concurrency", [1, 8, 9, 64])
def test_requests_spread_over_data_parallel_ranks(concurrency: int) -> None:
    """The fullest of 8 pools has to hold ceil(N / 8) requests."""
    for engine, parallel in (
        ("sglang", Parallel(tensor=8, data=8, data_attention=True)),
        ("vllm", Parallel(tensor=1, data=8, expert=8)),
    ):
        asked = Configuration(engine=engine, model="m", parallel=parallel)  # type: ignore[arg-type]
        model, machine = zoo_model("deepseek-ai/DeepSeek-V3"), parse_machine("b200:8")
        one = plan(model, asked, machine, target=target(30_000))
        found = plan(model, asked, machine, target=target(30_000, concurrency=concurrency))
        assert one.reach is not None
        assert found.reach is not None
        assert found.pools == found.reach.pools == 8
        assert found.reach.concurrency == -(-concurrency // 8)
        spare = 1 if engine == "vllm" else 0
        assert found.reach.needed - spare == found.reach.concurrency * (one.reach.needed - spare)
        assert all(room.in_all == 8 * room.requests for room in found.room)
        assert found.longest_request <= found.held


def test_context_ranks_are_counted_in_what_the_engine_prints() -> None:
    """One rank prints its share: needed and available are in that unit, and `held` is what all of them hold."""
    model, machine = zoo_model("moonshotai/Kimi-K2-Instruct"), parse_machine("b200:8")
    alone = plan(model, Configuration(engine="sglang", model="m", parallel=Parallel(tensor=8)), machine)
    asked = Configuration(engine="sglang", model="m", parallel=Parallel(tensor=8, decode_context=8))
    found = plan(model, asked, machine, target=target(100_000))
    assert found.pool.tokens == alone.pool.tokens
    assert found.held == 8 * found.pool.tokens
    assert found.reach is not None
    assert found.reach.available == found.pool.tokens
    assert found.reach.needed == -(-104_000 // (8 * 64)) * 64
    assert found.reach.context_ranks == 8


def test_what_does_not_reach_it_is_counted_and_kept_but_not_shown() -> None:
    found = solved("moonshotai/Kimi-K2-Instruct", "h200:8", target(100_000), parallel=Parallel(tensor=8))
    assert found.first is not None
    assert found.short == sum(not one.reaches for one in found.candidates) > 0
    assert all(one.reaches for one in found.shown)


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [(), ("tensor",)])
def test_more_gpus_are_more_than_those_given_and_the_fewest(fixed: tuple[str, ...]) -> None:
    wanted = target(100_000, concurrency=4)
    found = solved("moonshotai/Kimi-K2-Instruct", "h100:8", wanted, parallel=Parallel(tensor=8), fixed=fixed)
    assert found.first is None
    assert found.otherwise is not None
    match = re.search(r"on 8 x NVIDIA H100 80GB HBM3; (\d+) of them would with (.+)\.", found.otherwise)
    assert match is not None, found.otherwise
    count = int(match[1])
    assert count > 8
    assert "--tp-size" in match[2]
    assert solved("moonshotai/Kimi-K2-Instruct", f"h100:{count}", wanted).first is not None
    assert solved("moonshotai/Kimi-K2-Instruct", f"h100:{count - 1}", wanted).first is None


def test_a_layout_that_the_user_fixed_is_named_where_another_one_would_do() -> None:
    found = solved("Qwen/Qwen3-32B", "h100:8", target(30_000, concurrency=32), fixed=("tensor", "pipeline"))
    assert found.first is None
    assert found.otherwise is not None
    assert "in this layout; the same GPUs would with --tp-size 8" in found.otherwise


def test_a_pasted_command_for_one_gpu_is_spread_over_those_given() -> None:
    """The command alone runs on one GPU, and so it is planned; the solver may use the others."""
    found = solved("Qwen/Qwen3-32B", "h100:8", target(30_000, concurrency=32))
    assert found.asked.gpus == 1
    assert flags(found)["--tp-size"] == "8"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_drafts_become_shorter_before_they_go(engine: str) -> None:
    asked = Configuration(engine=engine, model="m", speculative=DRAFT)  # type: ignore[arg-type]
    steps = drafts(zoo_model("deepseek-ai/DeepSeek-V3"), asked, parse_machine("h200").device)
    assert [step.name for step in steps] == ["shorter draft", "no draft"]
    assert steps[0].weight < steps[1].weight
    shorter = steps[0].fields(asked)["speculative"]
    assert shorter.draft_tokens < (DRAFT.draft_tokens or 0)


@pytest.mark.parametrize(
    ("name", "gpu", "concurrency"),
    [
        ("deepseek-ai/DeepSeek-V3", "h100:8", 512),
        ("nvidia/Kimi-K2.6-NVFP4", "rtx-pro-6000:8", 32),
        ("zai-org/GLM-5", "mi355x:8", 64),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "b200:8", 64),
    ],
)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_search_stays_small(name: str, gpu: str, concurrency: int, engine: str) -> None:
    """A plan takes under 3 ms, so that 1,200 of them stay under the five seconds that a user waits."""
    model, machine, wanted = zoo_model(name), parse_machine(gpu), target(100_000, concurrency=concurrency)
    asked = Configuration(engine=engine, model=name)  # type: ignore[arg-type]
    given = Given(model=model, machine=machine, target=wanted, asked=asked, made={})
    for _ in search(given, layouts(model, asked, machine, frozenset(), concurrency)):
        pass
    assert len(given.made) < 1200


SEGMENTS = (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)


@pytest.mark.parametrize(
    ("gpu", "ranks", "flags", "clash"),
    [
        ("h200", 8, (), True),
        ("h200", 8, ("--disable-custom-all-reduce",), False),
        ("h200", 1, (), False),
        ("rtx-pro-6000", 8, (), False),  # more than two GPUs without NVLink: custom all-reduce is off by itself
        ("rtx-pro-6000", 2, (), True),
    ],
)
def test_segments_clash_with_custom_all_reduce_where_it_is_on(
    gpu: str, ranks: int, flags: tuple[str, ...], clash: bool
) -> None:
    asked = Configuration(
        engine="sglang",
        model="m",
        version="0.5.15.post1",
        parallel=Parallel(tensor=ranks),
        environment=SEGMENTS,
        flags=flags,
    )
    found = plan(zoo_model("Qwen/Qwen3-8B"), asked, parse_machine(f"{gpu}:{ranks}"))
    assert any("expandable segments" in conflict for conflict in found.conflicts) is clash


def test_a_command_that_clashes_is_mended_first() -> None:
    """Leaving the segments out, or custom all-reduce, is what lets it start; nothing dear is needed for that."""
    found = solved(
        "moonshotai/Kimi-K2-Instruct",
        "h200:8",
        target(60_000),
        version="0.5.15.post1",
        parallel=Parallel(tensor=8),
        fixed=("tensor",),
        memory_fraction=0.93,
        chunk=Tokens(4096),
        environment=SEGMENTS,
    )
    assert found.asked.conflicts
    assert flags(found)["PYTORCH_CUDA_ALLOC_CONF"] == "(leave it out)"
    assert found.first is not None
    assert found.first.plan.conflicts == ()
    assert any("--disable-custom-all-reduce" in one.asked.flags for one in found.shown)
    assert found.otherwise is None


def test_no_row_adds_to_a_better_one() -> None:
    found = solved(KIMI, "rtx-pro-6000:8", target(200_000), parallel=Parallel(tensor=8), speculative=DRAFT)
    changed = [{(change.flag, change.value) for change in one.changes} for one in found.shown]
    assert not any(better <= worse for at, better in enumerate(changed) for worse in changed[at + 1 :])


@pytest.mark.parametrize(
    ("name", "engine", "version", "speculative", "drafts"),
    [
        ("deepseek-ai/DeepSeek-V3", "sglang", None, None, True),
        ("deepseek-ai/DeepSeek-V3", "vllm", None, None, True),
        ("deepseek-ai/DeepSeek-V3", "vllm", "0.19.0", None, False),  # not read there
        ("deepseek-ai/DeepSeek-V3", "sglang", None, DRAFT, False),  # asked for already
        ("Qwen/Qwen3-32B", "sglang", None, None, False),  # has none
    ],
)
def test_draft_layers_of_the_checkpoint_are_offered_where_they_fit(
    name: str, engine: str, version: str | None, speculative: Speculative | None, drafts: bool
) -> None:
    found = solved(
        name,
        "b200:8",
        target(30_000),
        engine=engine,
        version=version,
        speculative=speculative,
        parallel=Parallel(tensor=8),
    )
    assert found.first is not None
    assert (found.drafted is not None) is drafts
    if found.drafted is not None:
        assert found.drafted.good
        assert found.drafted.asked.speculative is not None
        assert found.first.asked.speculative is None, "it is offered, not taken"


def test_draft_layers_are_not_offered_where_the_engine_cannot_combine_them() -> None:
    layout = Parallel(tensor=4, pipeline=2)
    found = solved("deepseek-ai/DeepSeek-V3", "b200:8", target(30_000), parallel=layout, fixed=("tensor", "pipeline"))
    assert found.first is not None
    assert found.drafted is None


def test_the_nearest_is_named_where_nothing_reaches_it() -> None:
    found = solved("Qwen/Qwen3-32B", "h100", target(30_000, concurrency=200))
    nearest = found.nearest
    assert nearest is not None
    assert nearest.plan.fits
    assert nearest.plan.worst_risk <= SAFE
    assert not nearest.reaches
    assert solved("Qwen/Qwen3-8B", "h200", target(30_000)).nearest is None


def test_a_limit_of_the_pool_below_the_target_is_lifted() -> None:
    """One request fits under it, four do not: more GPUs would not help."""
    found = solved("Qwen/Qwen3-8B", "h200", target(30_000, concurrency=4), pool_tokens=Tokens(40_000))
    assert flags(found) == {"--max-total-tokens": "(leave it out)"}
    assert found.otherwise is None


@pytest.mark.parametrize(
    ("name", "ranks", "context", "clash"),
    [
        ("Qwen/Qwen3-235B-A22B", 8, 2, False),  # 4 KV heads on 8 ranks, 16 queries a head
        ("Qwen/Qwen3-235B-A22B", 8, 4, True),
        ("Qwen/Qwen3-235B-A22B", 4, 2, True),
        ("deepseek-ai/DeepSeek-V3", 8, 8, False),
    ],
)
def test_context_ranks_share_copies_of_heads_only(name: str, ranks: int, context: int, clash: bool) -> None:
    asked = Configuration(engine="vllm", model="m", parallel=Parallel(tensor=ranks, decode_context=context))
    found = plan(zoo_model(name), asked, parse_machine(f"h200:{ranks}"))
    assert any("decode context parallelism" in conflict for conflict in found.conflicts) is clash


@pytest.mark.parametrize(
    ("concurrency", "moved", "otherwise"),
    [
        (1, set(), None),
        (2, {"--mem-fraction"}, None),
        (8, None, "Nothing reaches it: the embedded engine runs on one device alone"),
    ],
)
def test_the_embedded_engine_has_its_fraction_alone(
    concurrency: int, moved: set[str] | None, otherwise: str | None
) -> None:
    found = solved("Qwen/Qwen3-8B", "rtx-4090:2", target(12_000, concurrency=concurrency), engine="embedded")
    assert (set(flags(found)) if found.first is not None else None) == moved
    assert otherwise is None or (found.otherwise or "").startswith(otherwise)


@pytest.mark.parametrize(
    ("version", "flag"), [("0.5.15.post1", "--cuda-graph-max-bs-decode"), ("0.5.9", "--cuda-graph-max-bs")]
)
def test_changes_are_spelled_as_the_version_does(version: str, flag: str) -> None:
    found = solved(
        "moonshotai/Kimi-K2-Instruct",
        "h200:8",
        target(100_000),
        version=version,
        parallel=Parallel(tensor=8),
        fixed=("tensor",),
    )
    spelled = {change.flag for one in found.candidates for change in one.changes}
    assert flag in spelled
    assert not any("--cuda-graph-max-bs" in name and name != flag for name in spelled)


def test_where_nothing_is_enough_the_nearest_goes_as_far_as_is_safe() -> None:
    found = solved(
        "moonshotai/Kimi-K2-Instruct", "h200:8", target(100_000, concurrency=32), parallel=Parallel(tensor=8)
    )
    assert found.first is None
    assert all(one.plan.worst_risk < LIKELY for one in found.candidates if one.reaches)
    nearest = found.nearest
    assert nearest is not None
    assert nearest.plan.reach is not None
    assert 0.7 < nearest.plan.reach.available / nearest.plan.reach.needed < 1
    fraction = nearest.plan.configuration.memory_fraction
    assert fraction is not None
    further = msgspec.structs.replace(nearest.asked, memory_fraction=fraction + 0.01)
    model, machine = zoo_model("moonshotai/Kimi-K2-Instruct"), parse_machine("h200:8")
    assert plan(model, further, machine).worst_risk > SAFE


@pytest.mark.parametrize(
    ("name", "gpu", "fields", "gains"),
    [
        ("deepseek-ai/DeepSeek-V3", "h200:8", {}, "; an fp8 cache and decode context parallelism gain most"),
        (KIMI, "rtx-pro-6000:8", {}, "; decode context parallelism gains most"),  # its cache is fp8 already
        ("deepseek-ai/DeepSeek-V3.2", "h200:8", {}, "; an fp8 cache gains most"),  # no context ranks on Hopper
        ("deepseek-ai/DeepSeek-V3", "h200:8", {"kv_dtype": "fp8_e4m3", "speculative": DRAFT, "version": "0.5.15"}, ""),
    ],
)
def test_the_largest_gains_with_latents_are_those_that_can_be_had(
    name: str, gpu: str, fields: dict[str, Any], gains: str
) -> None:
    found = solved(name, gpu, target(30_000), parallel=Parallel(tensor=8), **fields)
    (note,) = found.notes
    assert note.endswith(f"more ranks do not divide it{gains}")


@pytest.mark.parametrize(
    "name", ["deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "Qwen/Qwen3.5-27B", "Qwen/Qwen3-235B-A22B"]
)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_all_cheap_knobs_weigh_less_than_any_dear_one(name: str, engine: str) -> None:
    model, machine, wanted = zoo_model(name), parse_machine("h200:8"), target(60_000, concurrency=64)
    asked = Configuration(engine=engine, model="m", parallel=Parallel(tensor=8), speculative=DRAFT)  # type: ignore[arg-type]
    light = sum(max(step.weight for step in steps) for steps in cheap(model, asked, wanted))
    found = plan(model, msgspec.structs.replace(asked, speculative=None), machine)
    light += max(fraction_step(found, fraction).weight for fraction in (0.3, 0.985))
    heavy = [step.weight for steps in dear(model, asked, machine.device, cached=None) for step in steps]
    heavy += [one.weight for one in layouts(model, asked, machine, frozenset(), 64)[1:] if one.name != "ranks"]
    assert light < min(heavy)


@pytest.mark.parametrize(
    ("engine", "parallel", "running", "refused"),
    [
        ("vllm", Parallel(data=8, expert=8), 8, False),  # each of 8 ranks its own 8
        ("vllm", Parallel(data=8, expert=8), 3, True),
        ("vllm", Parallel(tensor=8), 8, True),
        ("sglang", Parallel(tensor=8, data=8, data_attention=True), 32, False),  # one limit, divided among 8 groups
        ("sglang", Parallel(tensor=8, data=8, data_attention=True), 8, True),
    ],
)
def test_a_limit_of_running_requests_is_each_pools_own(
    engine: str, parallel: Parallel, running: int, refused: bool
) -> None:
    def go() -> Solution:
        return solved(
            "deepseek-ai/DeepSeek-V3",
            "b200:8",
            target(8_000, concurrency=32),
            engine=engine,
            parallel=parallel,
            max_running=running,
            fixed=("tensor", "data", "expert", "pipeline"),
        )

    if refused:
        with pytest.raises(BadInput, match="contradicts a limit"):
            go()
    else:
        assert go().first is not None
