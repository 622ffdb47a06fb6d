import msgspec
import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Solution, Target, solve
from draftmark.planner.candidate import SAFE, SURE
from draftmark.planner.combinations import CONDITIONS, broken, rules
from draftmark.planner.sglang.rules import NEWEST
from draftmark.planner.versions import parse_version
from draftmark.units import Tokens
from tests.zoo import zoo_model

KIMI = "nvidia/Kimi-K2.6-NVFP4"
DRAFT = Speculative(algorithm="EAGLE", steps=3, top_k=1, draft_tokens=4)


def target(context: int, output: int = 4000, concurrency: int = 1) -> Target:
    return Target(context=Tokens(context), output=Tokens(output), concurrency=concurrency)


def solved(name: str, gpu: str, wanted: Target, **fields: object) -> Solution:
    asked = Configuration(engine=fields.pop("engine", "sglang"), model=name, **fields)  # type: ignore[arg-type]
    return solve(zoo_model(name), asked, parse_machine(gpu), wanted)


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
    found = solved(KIMI, "rtx-pro-6000:8", target(200_000, concurrency=4), engine="vllm", parallel=Parallel(tensor=8))
    assert any("holds the whole latent" in note for note in found.notes)
    assert found.first is not None
    flags = {change.flag for change in found.first.changes}
    assert flags & {"--decode-context-parallel-size", "--kv-cache-dtype"}


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
def test_targets_that_cannot_be(wanted: Target, fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        solved("Qwen/Qwen3-32B", "h200", wanted, **fields)


def test_no_proposal_breaks_a_rule() -> None:
    for version in ("0.5.15.post1", NEWEST):
        found = solved(
            KIMI, "rtx-pro-6000:8", target(200_000), parallel=Parallel(tensor=8), speculative=DRAFT, version=version
        )
        for one in found.candidates:
            assert broken(one.asked, zoo_model(KIMI), NEWEST) == ()


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
        ({"page": Tokens(64), "speculative": msgspec.structs.replace(DRAFT, top_k=4)}, "pages"),
    ],
)
def test_known_conflicts_are_found(changes: dict[str, object], pair: str) -> None:
    asked = Configuration(engine="sglang", model="m", version="0.5.15.post1", **changes)  # type: ignore[arg-type]
    assert pair in {rule.two for rule in broken(asked, zoo_model(KIMI), NEWEST)}
