"""What MXFP4 experts take beyond their checkpoint's bytes, against starts that printed their weights."""

from typing import Any

import pytest

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import plan
from draftmark.planner.experts import growth, unpacked
from draftmark.planner.layout import rank_weights, stages
from draftmark.units import GIB
from tests.zoo import zoo_model

SMALL, LARGE = "openai/gpt-oss-20b", "openai/gpt-oss-120b"


def asked(engine: EngineName, tensor: int = 1, expert: int = 1, **fields: Any) -> Configuration:
    parallel = Parallel(tensor=tensor, expert=expert)
    return Configuration(engine=engine, model="m", dtype="bfloat16", parallel=parallel, **fields)


def weights(name: str, gpu: str, wanted: Configuration) -> float:
    model = zoo_model(name)
    (stage,) = stages(len(model.layers), 1)
    return rank_weights(model, wanted, stage, parse_machine(gpu).device) / GIB


@pytest.mark.parametrize(
    ("name", "gpu", "tensor", "printed"),
    [
        # tests/data/starts: vllm-0.19-h100.csv and vllm-public.jsonl; the last one is one rank of the same machine.
        (SMALL, "h100", 1, 13.64),
        (SMALL, "gb10", 1, 13.72),
        (SMALL, "h100", 2, 7.01),
    ],
)
def test_public_starts_of_vllm(name: str, gpu: str, tensor: int, printed: float) -> None:
    assert weights(name, gpu, asked("vllm", tensor)) == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx-pro-6000", "b200", "mi300x"])
@pytest.mark.parametrize("name", [SMALL, LARGE])
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_padding_never_shrinks_and_stays_a_padding(engine: EngineName, gpu: str, name: str, tensor: int) -> None:
    device = parse_machine(gpu).device
    factor = growth(zoo_model(name), asked(engine, tensor), device)
    assert 1.0 <= factor < 1.6
    assert growth(zoo_model(name), asked(engine, tensor, expert=tensor), device) <= (16 / 4.25) * 1.3


@pytest.mark.parametrize("name", ["Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-R1", "nvidia/Kimi-K2.5-NVFP4"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_other_experts_are_held_as_they_are_stored(name: str, engine: EngineName) -> None:
    assert growth(zoo_model(name), asked(engine, 8, expert=8), parse_machine("b200").device) == 1.0


@pytest.mark.parametrize(
    ("gpu", "expert", "flags", "quantization", "whole"),
    [
        ("h100", 1, (), None, False),
        ("h100", 2, (), None, True),
        ("a100", 2, (), None, True),
        ("b200", 2, (), None, False),
        ("rtx-pro-6000", 2, (), None, False),
        ("h100", 1, (), "mxfp4", True),
        ("h100", 1, ("--moe-runner-backend", "triton"), None, True),
        ("b200", 1, ("--moe-runner-backend", "triton"), None, True),
        ("h100", 2, ("--moe-runner-backend", "marlin"), None, False),
        ("h100", 1, ("--moe-runner-backend", "auto"), None, False),
    ],
)
def test_backends_that_read_no_mxfp4_get_bfloat16_and_it_is_said(
    gpu: str, expert: int, flags: tuple[str, ...], quantization: str | None, whole: bool
) -> None:
    model, machine = zoo_model(LARGE), parse_machine(f"{gpu}:2")
    wanted = asked("sglang", 2, expert, flags=flags, quantization=quantization)
    assert unpacked(model, wanted, machine.device) is whole
    found = plan(model, wanted, machine)
    assert any("bfloat16 with this expert backend" in note for note in found.notes) is whole
    held = next(entry.bytes for entry in found.ledgers[0].entries if entry.account == "weights") / GIB
    assert (held > 100) is whole


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("deepseek-ai/DeepSeek-R1", ("--moe-a2a-backend", "deepep"), "deepep's buffers"),
        ("deepseek-ai/DeepSeek-R1", ("--moe-a2a-backend", "mooncake"), "mooncake's buffers"),
        ("deepseek-ai/DeepSeek-R1", ("--moe-a2a-backend", "none"), None),
        ("deepseek-ai/DeepSeek-R1", (), None),
        ("Qwen/Qwen3-32B", ("--moe-a2a-backend", "deepep"), None),
    ],
)
def test_buffers_between_experts_are_said_to_be_in_no_term(name: str, flags: tuple[str, ...], said: str | None) -> None:
    found = plan(zoo_model(name), asked("sglang", 8, 8, flags=flags), parse_machine("h200:8"))
    assert any("buffers, made at the first request" in note for note in found.notes) is (said is not None)
    assert said is None or any(said in note for note in found.notes)


def test_logits_are_of_the_requests_that_run() -> None:
    """Two requests at once have two rows of logits, whatever the largest captured batch."""
    few = asked("sglang", max_running=2, graph_batch=256)
    found = plan(zoo_model("Qwen/Qwen3-8B"), few, parse_machine("h200"))
    entry = next(entry for entry in found.ledgers[0].entries if entry.account == "logits")
    assert entry.why.startswith("2 rows")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(("name", "said"), [(SMALL, True), ("Qwen/Qwen3-30B-A3B", False)])
def test_the_factor_of_padded_experts_stands_in_the_ledger(engine: EngineName, name: str, said: bool) -> None:
    found = plan(zoo_model(name), asked(engine, 4), parse_machine("b200:4"))
    entry = next(entry for entry in found.ledgers[0].entries if entry.account == "weights")
    assert ("as kernels hold mxfp4" in entry.why) is said
