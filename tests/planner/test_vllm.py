import csv
import json
import math
from functools import cache

import msgspec
import pytest

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import read_model
from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import plan
from draftmark.planner.layout import stages, vllm_stages
from draftmark.planner.vllm.predict import printed
from draftmark.planner.vllm.rules import rules_for
from draftmark.planner.vllm.specs import grouped, specifications
from draftmark.units import GIB, Tokens
from tests.zoo import DATA, rows, zoo_model

STARTS = list(csv.DictReader((DATA / "starts" / "vllm-0.19-h100.csv").read_text().splitlines()))
ROUNDING = 0.005 * GIB
"""What two decimals of a GiB leave open."""


@cache
def start_model(name: str) -> Model:
    for line in (DATA / "starts" / "models.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["name"] == name:
            return read_model(Files(place=name, name=name, config=row["config"]))
    return read_model(Files(place=name, name=name, config=rows()[name]["config"]))


def configuration(row: dict[str, str]) -> Configuration:
    return Configuration(
        engine="vllm",
        model=row["model"],
        version="0.19.0",
        parallel=Parallel(tensor=int(row["tensor"]), pipeline=int(row["pipeline"])),
        memory_fraction=0.95,
        chunk=Tokens(8192),
        max_running=1024,
        context=Tokens(int(row["max_model_len"])),
        page=Tokens(16),
        dtype=row["dtype"],
        kv_dtype=None if row["kv_dtype"] == "auto" else row["kv_dtype"],
    )


@pytest.mark.parametrize("row", STARTS, ids=[f"{row['model']}-{number}" for number, row in enumerate(STARTS)])
def test_measured_budgets_give_the_printed_blocks_and_tokens(row: dict[str, str]) -> None:
    wanted, model = configuration(row), start_model(row["model"])
    stage = min(vllm_stages(len(model.layers), int(row["pipeline"])), key=lambda stage: stage.start - stage.end)
    grouping = grouped(specifications(model, wanted, stage, None), wanted)
    budget = float(row["kv_gib"]) * GIB
    printed_tokens = int(row["tokens"])
    if int(row["pipeline"]) > 1:
        # The log that was read is one stage's; another stage had less and set the number of blocks.
        held = int(row["blocks"]) * grouping.block_bytes
        assert 0.98 < held / budget <= 1 + ROUNDING / budget
        return
    fewest, most = (math.floor((budget + slack) / grouping.block_bytes) for slack in (-ROUNDING, ROUNDING))
    if row["blocks"]:
        assert fewest <= int(row["blocks"]) <= most
        exact = printed(grouping, wanted, rules_for("0.19.0"), int(row["max_model_len"]), int(row["blocks"]))
        assert exact == printed_tokens
    else:
        counts = [printed(grouping, wanted, rules_for("0.19.0"), 8192, blocks) for blocks in (fewest, most)]
        assert counts[0] <= printed_tokens <= counts[1]


def test_recurrent_states_raise_the_attention_block() -> None:
    """Qwen3.8-27B with three drafted tokens, vLLM 0.25.1: 80.17 GiB gave 1,191,213 tokens, 4.54 x 262,144."""
    model = zoo_model("nvidia/Qwen3.6-27B-NVFP4")
    wanted = Configuration(
        engine="vllm",
        model="m",
        kv_dtype="bfloat16",
        dtype="bfloat16",
        context=Tokens(262_144),
        speculative=Speculative(algorithm="mtp", draft_tokens=3),
    )
    grouping = grouped(specifications(model, wanted, stages(64, 1)[0], None), wanted)
    assert {group.block for group in grouping.groups} == {800}
    blocks = int(80.17 * GIB / grouping.block_bytes)
    tokens = printed(grouping, wanted, rules_for("0.25.1"), 262_144, blocks)
    assert tokens == pytest.approx(1_191_213, rel=0.001)


def test_the_meaning_of_printed_tokens_follows_the_version() -> None:
    model = start_model("google/gemma-3-27b-it")
    wanted = Configuration(engine="vllm", model="m", context=Tokens(8192), chunk=Tokens(8192), dtype="bfloat16")
    grouping = grouped(specifications(model, wanted, stages(62, 1)[0], None), wanted)
    counts = {
        version: printed(grouping, wanted, rules_for(version), 8192, 15_997) for version in ("0.9", "0.19", "0.33")
    }
    assert counts["0.9"] == 15_997 * 16
    assert counts["0.19"] == 36_560
    assert counts["0.33"] == int(15_997 / grouping.request_blocks(8192, wanted) * 8192)


def test_decode_context_parallelism_multiplies_the_latent_pool() -> None:
    """Kimi K2.6 at tensor parallelism 8: each GPU holds the whole latent, unless the context is split."""
    model = zoo_model("nvidia/Kimi-K2.6-NVFP4")
    base = Configuration(
        engine="vllm", model="m", version="0.19.0", memory_fraction=0.94, max_running=128, parallel=Parallel(tensor=8)
    )
    machine = parse_machine("rtx-pro-6000:8")
    one = plan(model, base, machine)
    split = msgspec.structs.replace(base, parallel=Parallel(tensor=8, decode_context=8))
    eight = plan(model, split, machine)
    assert eight.pool.tokens == 8 * one.pool.tokens
    assert eight.longest_request >= one.longest_request


@pytest.mark.parametrize(
    ("kv_dtype", "tensor", "block_bytes"),
    [
        # What vLLM 0.32.0's get_kv_cache_groups says of the model on one rank.
        ("bfloat16", 1, 17_596_416),
        ("fp8", 1, 9_732_096),
        # Four KV heads: a quarter on each of four ranks, one head on each of eight; the selector's key is held whole.
        ("bfloat16", 4, 128 * (60 * 512 + 57 * 256)),
        ("bfloat16", 8, 128 * (60 * 512 + 57 * 256)),
    ],
)
def test_a_block_selectors_keys_share_the_blocks(kv_dtype: str, tensor: int, block_bytes: int) -> None:
    model = zoo_model("MiniMaxAI/MiniMax-M3")
    parallel = Parallel(tensor=tensor)
    wanted = Configuration(engine="vllm", model="m", kv_dtype=kv_dtype, page=Tokens(128), parallel=parallel)
    grouping = grouped(specifications(model, wanted, stages(60, 1)[0], None), wanted)
    assert len(grouping.groups) == 1
    assert grouping.block_bytes == block_bytes


def test_each_module_of_a_model_that_selects_blocks_keeps_a_cache() -> None:
    """MiniMax M3's config states seven modules: seven layers with keys and values, and a selector's key each."""
    model = zoo_model("MiniMaxAI/MiniMax-M3")
    alone = Configuration(engine="vllm", model="m", page=Tokens(128))
    drafting = msgspec.structs.replace(alone, speculative=Speculative(algorithm="mtp", draft_tokens=1))
    count = [len(specifications(model, wanted, stages(60, 1)[0], None)) for wanted in (alone, drafting)]
    assert count == [117, 117 + 2 * 7]


def test_what_selected_blocks_allow() -> None:
    model, machine = zoo_model("nvidia/MiniMax-M3-NVFP4"), parse_machine("b200:8")
    wanted = Configuration(engine="vllm", model="m", parallel=Parallel(tensor=8))
    found = plan(model, wanted, machine)
    assert found.configuration.page == 128
    assert any("selector's keys" in note for note in found.notes)
    with pytest.raises(BadInput, match="a block of 64 tokens does not hold"):
        plan(model, msgspec.structs.replace(wanted, page=Tokens(64)), machine)
    split = msgspec.structs.replace(wanted, parallel=Parallel(tensor=8, decode_context=2))
    assert any("selected blocks cannot be combined" in conflict for conflict in plan(model, split, machine).conflicts)


def test_uneven_stages() -> None:
    assert [stage.end - stage.start for stage in vllm_stages(61, 4)] == [15, 15, 16, 15]
    assert [stage.end - stage.start for stage in stages(61, 4)] == [15, 15, 15, 16]
    assert [stage.end - stage.start for stage in vllm_stages(32, 4)] == [8, 8, 8, 8]


def test_a_request_that_does_not_fit_is_a_risk_of_the_pool() -> None:
    wanted = Configuration(engine="vllm", model="m", memory_fraction=0.92)
    found = plan(zoo_model("Qwen/Qwen3-32B"), wanted, parse_machine("h100"))
    risk = next(risk for risk in found.risks if risk.phase == "pool")
    assert found.longest_request < 40_960 or risk.probability < 0.5
    greedy = plan(start_model("Qwen/Qwen2.5-72B-Instruct"), wanted, parse_machine("h200"))
    risk = next(risk for risk in greedy.risks if risk.phase == "pool")
    assert risk.probability > 0.99
    assert "raise the utilization" in risk.why


def test_plain_weights_are_held_in_the_served_dtype() -> None:
    model = start_model("meta-llama/Llama-3.1-8B-Instruct")
    wanted = Configuration(engine="vllm", model="m", version="0.19.0")
    half = plan(model, wanted, parse_machine("h100"))
    wide = plan(model, msgspec.structs.replace(wanted, dtype="float32"), parse_machine("h100"))
    narrow, broad = half.ledgers[0].amount("weights"), wide.ledgers[0].amount("weights")
    assert narrow is not None
    assert broad is not None
    assert broad == pytest.approx(2 * narrow, rel=0.01)
    small = plan(model, msgspec.structs.replace(wanted, quantization="fp8"), parse_machine("h100"))
    assert small.ledgers[0].amount("weights") == pytest.approx(8.49 * GIB, rel=0.01)  # as a public start printed
    with pytest.raises(BadInput, match="unknown quantization 'bits'"):
        plan(model, msgspec.structs.replace(wanted, quantization="bits"), parse_machine("h100"))


def test_data_parallel_ranks_that_share_experts_have_libraries_of_several_ranks() -> None:
    model, machine = zoo_model("deepseek-ai/DeepSeek-V3"), parse_machine("b200:8")

    def held(parallel: Parallel) -> tuple[int | None, int | None]:
        ledger = plan(model, Configuration(engine="vllm", model="m", parallel=parallel), machine).ledgers[0]
        return ledger.amount("context"), ledger.amount("communication")

    shared = held(Parallel(data=8, expert=8))
    copies = held(Parallel(data=8))
    assert (shared[0] or 0) > (copies[0] or 0)
    assert (shared[1] or 0) > (copies[1] or 0)
