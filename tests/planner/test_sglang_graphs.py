"""Triton's graph buffers against what real starts log before and after they are made."""

import json
import re
import tomllib
from typing import Any

import pytest

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import read_model
from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.engines.sglang_flags import parse_flags
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner.sglang.graphs import buffers, graphs, triton, uses_triton
from draftmark.planner.sglang.rank import shared_with_target
from draftmark.planner.sglang.rules import rules_for
from draftmark.units import GIB, Tokens
from tests.zoo import DATA, rows, zoo_model

FOLDER = DATA / "sglang-starts"
CAPTURE = re.compile(
    r"Capture (target decode|target verify|draft extend) CUDA graph begin.*?num_tokens_per_bs=(\d+), "
    r"bs=\[(?:\d+, )*(\d+)\], avail mem=([\d.]+) GB.*?avail_mem=([\d.]+) GB",
    re.DOTALL,
)


def starts() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (FOLDER / "starts.jsonl").read_text().splitlines()]
    return [start for start in found if CAPTURE.search(start["log"])]


def model_of(start: dict[str, Any]) -> Model:
    entry = tomllib.loads((FOLDER / "starts.toml").read_text())["models"][start["model"]]
    config = {**rows()[entry["base"]]["config"], **entry.get("changes", {})}
    config.pop("quantization_config", None)
    return read_model(Files(place=start["model"], name=start["model"], config=config))


@pytest.mark.parametrize("start", starts(), ids=lambda start: start["name"])
def test_buffers_are_what_the_log_loses_before_the_first_capture(start: dict[str, Any]) -> None:
    model, asked = model_of(start), parse_flags(tuple(start["flags_given"])).configuration
    each = buffers(model, asked)
    for _, tokens, batch, before, after in CAPTURE.findall(start["log"]):
        expected = int(batch) * int(tokens) * (each.partial + each.indices + each.mask)
        assert float(before) - float(after) == pytest.approx(expected / GIB, abs=0.05)


def test_a_published_worked_number() -> None:
    """64 rows of DeepSeek-V3's 128 heads in 256 parts of 512 + 1 float32, and 9 bytes a token of context: 4.1 GiB."""
    model = zoo_model("deepseek-ai/DeepSeek-V3")
    each = buffers(model, Configuration(engine="sglang", model="m"))
    assert each.partial == 128 * 256 * 513 * 4
    assert 64 * (each.partial + each.indices + each.mask) == pytest.approx(4.1 * GIB, rel=0.01)


def test_ranks_divide_the_heads_and_context_ranks_gather_them() -> None:
    model = zoo_model("deepseek-ai/DeepSeek-V3")

    def partial(**parallel: Any) -> int:
        return buffers(model, Configuration(engine="sglang", model="m", parallel=Parallel(**parallel))).partial

    assert partial(tensor=8) == partial() // 8
    assert partial(tensor=8, decode_context=8) == partial()
    assert partial(tensor=8, data=8, data_attention=True) == partial()


def test_a_shorter_context_takes_fewer_buffers() -> None:
    model = zoo_model("deepseek-ai/DeepSeek-V3")
    long, short = (
        triton(model, Configuration(engine="sglang", model="m", context=Tokens(size)), 64) for size in (160_000, 2_000)
    )
    assert short.bytes < long.bytes / 2


@pytest.mark.parametrize(
    ("name", "gpu", "flags", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3", "rtx-pro-6000", (), True),
        ("deepseek-ai/DeepSeek-V3", "h200", (), False),
        ("deepseek-ai/DeepSeek-V3", "b200", (), False),
        ("deepseek-ai/DeepSeek-V3", "h200", ("--attention-backend", "triton"), True),
        ("deepseek-ai/DeepSeek-V3", "rtx-pro-6000", ("--attention-backend", "flashmla"), False),
        ("Qwen/Qwen3-8B", "rtx-4090", (), False),
        ("Qwen/Qwen3-8B", "rtx-4090", ("--attention-backend", "triton"), True),
    ],
)
def test_who_runs_in_triton(name: str, gpu: str, flags: tuple[str, ...], expected: bool) -> None:
    asked = Configuration(engine="sglang", model="m", flags=flags)
    assert uses_triton(asked, zoo_model(name), parse_machine(gpu).device) is expected


def test_no_graphs_take_nothing() -> None:
    asked = Configuration(engine="sglang", model="m", graphs=False)
    assert graphs(zoo_model("Qwen/Qwen3-8B"), asked, rules_for(None), parse_machine("h200").device) is None


@pytest.mark.parametrize(
    ("algorithm", "hidden", "given_back"),
    [
        ("EAGLE3", 4096, 128_256 * 4096 * 2),
        ("EAGLE", 4096, (128_256 + 32_000) * 4096 * 2),
        ("EAGLE3", 2048, 0),  # another width: the embedding cannot be shared
        ("STANDALONE", 4096, 0),
    ],
)
def test_an_eagle_draft_gives_back_what_it_reads_from_the_target(algorithm: str, hidden: int, given_back: int) -> None:
    base = rows()["meta-llama/Meta-Llama-3.1-8B"]["config"]
    changes = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32_000,
        "hidden_size": hidden,
    }
    draft = read_model(Files(place="draft", name="draft", config={**base, **changes}))
    asked = Configuration(engine="sglang", model="m", speculative=Speculative(algorithm=algorithm))
    assert shared_with_target(zoo_model("meta-llama/Meta-Llama-3.1-8B"), asked, draft) == given_back
