"""The embedded engine's adapter: real logs, launch commands, and a live server."""

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.engines import allocator
from draftmark.engines.embedded import ADAPTER
from draftmark.errors import BadInput
from draftmark.observation import Observation, Phase
from draftmark.units import Tokens

LOGS = Path(__file__).parents[1] / "data" / "embedded"


def read(name: str) -> tuple[tuple[Observation, ...], list[Phase]]:
    """All observations of a log, and the phases that it went through."""
    reader = ADAPTER.reader(name)
    found: list[Observation] = []
    phases: list[Phase] = []
    for number, line in enumerate((LOGS / name).read_text().splitlines(), start=1):
        found += reader.feed(line, number)
        found += allocator.read(line, number, name, reader.phase)
        if reader.phase not in phases[-1:]:
            phases.append(reader.phase)
    return tuple(found), phases


def values(observations: tuple[Observation, ...], phase: Phase) -> dict[str, Any]:
    return {found.quantity: found.value for found in observations if found.phase == phase}


def test_a_log_from_start_to_end() -> None:
    observations, phases = read("ready.log")
    assert phases == ["init", "weights", "pool", "warm-up", "ready", "stopping"]
    assert values(observations, "init") == {
        "start": "draftmark.embedded",
        "version": "0.1.0",
        "model": "/models/tiny/gqa",
        "device": "cpu",
        "capacity": 512 * 1024**2,
        "free": 512 * 1024**2,
        "elapsed": 0.019,
    }
    assert values(observations, "weights") == {
        "weights": 16786688,
        "dtype": "float32",
        "free": 496291840,
        "elapsed": 0.115,
    }
    assert values(observations, "pool") == {
        "pool_tokens": 37272,
        "pool_bytes": 37272 * 8192,
        "bytes_per_token": 8192,
        "page": 1,
        "kv_dtype": "float32",
        "free": 190926848,
        "elapsed": 0.076,
    }
    assert values(observations, "ready") == {
        "context_length": 16384,
        "chunk": 512,
        "max_running": 8,
        "memory_fraction": 0.6,
        "free": 183050240,
        "elapsed": 0.001,
    }
    weights = next(found for found in observations if found.quantity == "weights")
    assert (weights.source.place, weights.source.line, weights.unit, weights.rank) == ("ready.log", 3, "bytes", 0)
    assert "bytes=16786688" in weights.source.text


def test_its_ledger_adds_up_and_names_what_it_cannot_explain() -> None:
    observations, _ = read("ready.log")
    (ledger,) = ADAPTER.ledgers(observations)
    assert ledger.capacity == 512 * 1024**2
    assert [entry.account for entry in ledger.entries] == ["weights", "pool", "unexplained", "free"]
    assert ledger.amount("pool") == 305332224
    assert ledger.free == 183050240
    pool = ADAPTER.pool(observations)
    assert pool is not None
    assert (pool.tokens, pool.bytes, pool.page) == (37272, 305332224, 1)


def test_a_gpu_has_memory_taken_before_and_activations() -> None:
    observations, phases = read("cuda-ready.log")
    assert phases == ["init", "weights", "pool", "warm-up", "ready", "stopping"]
    (ledger,) = ADAPTER.ledgers(observations)
    assert {entry.account: entry.bytes for entry in ledger.entries} == {
        "context": 150109880320 - 148909916160,
        "weights": 16786688,
        "pool": 1073741824,
        "activations": 1942016,
        "unexplained": 121780480,
        "free": 147695665152,
    }


def test_out_of_memory_on_a_gpu_is_placed_in_the_warm_up() -> None:
    observations, phases = read("cuda-oom.log")
    assert phases[-1] == "warm-up"
    tried = next(found for found in observations if found.quantity == "tried")
    assert (tried.value, tried.phase) == (20 * 1024**2, "warm-up")


def test_out_of_memory_in_prefill_is_placed_there() -> None:
    observations, phases = read("oom-prefill.log")
    assert phases == ["init", "weights", "pool", "warm-up", "ready", "prefill"]
    tried = next(found for found in observations if found.quantity == "tried")
    assert tried.phase == "prefill"
    assert ADAPTER.ledgers(observations), "it was ready before"


def test_out_of_memory_before_there_is_a_pool() -> None:
    observations, phases = read("oom-pool.log")
    assert phases[-1] == "pool"
    assert next(found.phase for found in observations if found.quantity == "tried") == "pool"
    assert ADAPTER.pool(observations) is None
    assert ADAPTER.ledgers(observations) == ()


def test_other_lines_say_nothing() -> None:
    reader = ADAPTER.reader("log")
    for line in ("", "Traceback", "draftmark.embedded: phase=ready", "2026-01-01 00:00:00,1 INFO other: phase=ready"):
        assert reader.feed(line, 1) == ()
    assert reader.phase == "unknown"


FULL = Configuration(
    engine="embedded",
    model="/models/a b",
    device="cpu",
    memory_fraction=0.5,
    chunk=Tokens(256),
    context=Tokens(4096),
    max_running=4,
    dtype="float32",
    flags=("--memory", "2Gi", "--served-model-name", "tiny"),
)


def test_a_command_reads_back_as_the_same_configuration() -> None:
    command = ADAPTER.command(FULL, python="python3", host="127.0.0.1", port=8123)
    assert command.argv[:3] == ("python3", "-m", "draftmark.embedded")
    assert command.argv[command.argv.index("--port") + 1] == "8123"
    pasted = ADAPTER.parse_command(command.argv, ())
    assert pasted.configuration == FULL
    assert pasted.not_understood == ()


def test_what_is_not_understood_is_named() -> None:
    argv = ("draftmark.embedded", "--model=m", "--turbo", "9", "--chunk", "1k", "stray")
    pasted = ADAPTER.parse_command(argv, (("A", "1"),))
    assert pasted.configuration.chunk == 1000
    assert pasted.configuration.environment == (("A", "1"),)
    assert pasted.not_understood == ("--turbo", "9", "stray")


@pytest.mark.parametrize("argv", [("--chunk", "5"), ("--model",), ("--model", "m", "--chunk", "many")])
def test_commands_that_cannot_be_used(argv: tuple[str, ...]) -> None:
    with pytest.raises(BadInput):
        ADAPTER.parse_command(argv, ())


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"parallel": Parallel(tensor=2)}, "--tp"),
        ({"parallel": Parallel(pipeline=2)}, "--tp"),
        ({"speculative": Speculative(algorithm="EAGLE")}, "--draft"),
        ({"kv_dtype": "fp8"}, "--kv-dtype"),
        ({"quantization": "awq"}, "--quantization"),
        ({"page": Tokens(64)}, "--page-size"),
        ({"version": "7"}, "--engine-version"),
        ({"dtype": "fp4_e2m1"}, "--dtype"),
        ({"dtype": "half"}, "--dtype"),
        ({"chunk": Tokens(0)}, "--chunk"),
        ({"context": Tokens(0)}, "--context"),
        ({"pool_tokens": Tokens(0)}, "--pool-tokens"),
        ({"max_running": 0}, "--max-running"),
        ({"memory_fraction": 0.0}, "--mem-fraction"),
        ({"memory_fraction": 1.5}, "--mem-fraction"),
        ({"memory_fraction": 0.5, "pool_tokens": Tokens(5)}, "the embedded engine"),
        ({"flags": ("--frob",)}, "--frob"),
        ({"flags": ("--memory", "1Gi", "--frob=3")}, "--frob"),
    ],
)
def test_what_the_engine_does_not_have(change: dict[str, Any], flag: str) -> None:
    configuration = Configuration(engine="embedded", model="m", **change)
    with pytest.raises(BadInput) as refused:
        ADAPTER.command(configuration, python="python3", host="127.0.0.1", port=1)
    assert refused.value.place == flag
    assert refused.value.remedy


def answering(status: int, body: Any) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, json=body)))


@pytest.mark.parametrize(("status", "body"), [(404, {}), (503, {}), (200, {"engine": "other"}), (200, [])])
def test_another_engine_is_not_this_one(status: int, body: Any) -> None:
    with answering(status, body) as client:
        assert ADAPTER.probe(client, "http://engine") is None


@pytest.mark.engine
def test_the_command_starts_it_and_the_probe_knows_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tiny = pytest.importorskip("draftmark.embedded.tiny")
    process = pytest.importorskip("tests.embedded.process")
    tiny.write(tmp_path / "gqa", tiny.gqa())
    configuration = Configuration(
        engine="embedded", model=str(tmp_path / "gqa"), device="cpu", memory_fraction=0.6, flags=("--memory", "256Mi")
    )
    command = ADAPTER.command(configuration, python=sys.executable, host="127.0.0.1", port=0)
    with process.server(tmp_path / "log", *command.argv[3:]) as running, httpx.Client() as client:
        state = ADAPTER.probe(client, running.url)
        reader = ADAPTER.reader("log")
        lines = enumerate(running.log.read_text().splitlines(), start=1)
        observations = tuple(found for number, line in lines for found in reader.feed(line, number))
    pool = ADAPTER.pool(observations)
    assert state is not None
    assert pool is not None
    assert state.pool_tokens == pool.tokens > 1000
    assert (state.context, state.chunk, state.max_running, state.page) == (16384, 512, 8, 1)
    told = {found.quantity: found.value for found in state.observations}
    stated = {found.quantity: found.value for found in observations}
    assert told == {quantity: stated[quantity] for quantity in told}
    assert len(told) == 4
