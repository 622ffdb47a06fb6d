"""What the solver proposes is a flag, and a value, of the version that it is proposed for."""

import pytest

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.engines.known import adapter
from draftmark.engines.launch import own_words
from draftmark.engines.offered import options
from draftmark.engines.words import read_words
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Target, solve
from draftmark.units import Tokens
from tests.zoo import zoo_model

CASES: tuple[tuple[str, str, int, int], ...] = (
    ("deepseek-ai/DeepSeek-V3", "h200:8", 150_000, 4),
    ("Qwen/Qwen3-32B", "rtx-4090:8", 30_000, 8),
    ("openai/gpt-oss-20b", "rtx-3090:2", 100_000, 2),
)
VERSIONS: tuple[tuple[EngineName, str], ...] = (
    ("vllm", "0.8.0"), ("vllm", "0.9.2"), ("vllm", "0.10.2"), ("vllm", "0.20.0"), ("vllm", "0.33.0"),
    ("sglang", "0.5.3"), ("sglang", "0.5.9"), ("sglang", "0.5.15.post1"), ("sglang", "0.5.19"), ("sglang", "0.5.23"),
)  # fmt: skip


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
@pytest.mark.parametrize(("name", "gpu", "context", "concurrency"), CASES)
def test_every_proposal_can_be_launched(
    engine: EngineName, version: str, name: str, gpu: str, context: int, concurrency: int
) -> None:
    machine = parse_machine(gpu)
    asked = Configuration(engine=engine, model=name, version=version, parallel=Parallel(tensor=machine.count))
    target = Target(context=Tokens(context), output=Tokens(1000), concurrency=concurrency)
    found = solve(zoo_model(name), asked, machine, target)
    assert found.candidates
    for candidate in found.candidates:
        command = adapter(engine).command(candidate.asked, python="python", host="h", port=1)
        words = read_words(own_words(command.argv), engine, version)
        assert words.unknown == (), f"{engine} {version} has no {words.unknown[0].name}"
        named = {change.flag.split()[0] for change in candidate.changes if change.flag.startswith("--")}
        gone = {change.flag.split()[0] for change in candidate.changes if change.value == "(leave it out)"}
        assert named - gone <= set(options(engine, version))
