"""The shares of SGLang's budget that the solver moves: windows beside full attention, states beside the cache."""

import pytest

from draftmark.configuration import Configuration, Parallel
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Target, plan, solve
from draftmark.planner.sglang.shares import states, windows
from draftmark.planner.step import with_flag
from draftmark.units import Tokens
from tests.zoo import zoo_model

HYBRID = "nvidia/Qwen3.6-35B-A3B-NVFP4"


def asked(*flags: str, engine: str = "sglang", **fields: object) -> Configuration:
    return Configuration(engine=engine, model="m", flags=flags, **fields)  # type: ignore[arg-type]


def target(context: int, concurrency: int = 1) -> Target:
    return Target(context=Tokens(context), output=Tokens(1_000), concurrency=concurrency)


@pytest.mark.parametrize(
    ("name", "engine", "flags", "length", "ratios"),
    [
        ("openai/gpt-oss-120b", "sglang", (), 120_000, ["0.4"]),  # 2 chunks of 16,384 beside one request of 121,000
        ("openai/gpt-oss-120b", "sglang", ("--swa-full-tokens-ratio", "0.3"), 120_000, []),
        ("openai/gpt-oss-120b", "vllm", (), 120_000, []),
        ("openai/gpt-oss-120b", "sglang", (), 20_000, []),
        ("Qwen/Qwen3-8B", "sglang", (), 30_000, []),
    ],
)
def test_windows_keep_room_for_chunks_in_flight(
    name: str, engine: str, flags: tuple[str, ...], length: int, ratios: list[str]
) -> None:
    steps = windows(zoo_model(name), asked(*flags, engine=engine), target(length))
    assert [step.changes[0].value for step in steps] == ratios


def test_a_smaller_window_share_gives_a_larger_pool() -> None:
    model, machine = zoo_model("openai/gpt-oss-120b"), parse_machine("h100")
    before = plan(model, asked(), machine)
    after = plan(model, asked("--swa-full-tokens-ratio", "0.1"), machine)
    assert after.pool.tokens == pytest.approx(before.pool.tokens * 1.8 / 1.1, rel=0.01)


@pytest.mark.parametrize(
    ("flags", "concurrency", "slots"),
    [
        ((), 1, "40"),
        ((), 20, "100"),
        (("--disable-radix-cache",), 20, "20"),
        (("--max-mamba-cache-size", "9"), 20, None),
    ],
)
def test_as_many_states_as_the_requests_take(flags: tuple[str, ...], concurrency: int, slots: str | None) -> None:
    steps = states(zoo_model(HYBRID), asked(*flags), target(30_000, concurrency))
    assert [step.changes[0].value for step in steps] == ([slots] if slots else [])


def test_the_solver_moves_states_before_dear_knobs() -> None:
    found = solve(
        zoo_model(HYBRID),
        asked(parallel=Parallel(tensor=2)),
        parse_machine("rtx-4090:2"),
        target(200_000, concurrency=8),
    )
    assert found.first is not None
    assert "--max-mamba-cache-size" in {change.flag for change in found.first.changes}
    assert found.first.asked.kv_dtype is None
    reach = found.first.plan.reach
    assert reach is not None
    assert reach.requests >= 8


def test_a_flag_takes_the_place_of_its_old_value() -> None:
    assert with_flag(("--a", "1", "--b", "2"), "--a", "3") == ("--a", "3", "--b", "2")
    assert with_flag((), "--a", "3") == ("--a", "3")


def test_states_are_divided_among_attention_groups() -> None:
    """Eight requests in each of two groups, five states a request: 80 in all, and 40 in each group's pool."""
    grouped = asked(parallel=Parallel(tensor=2, data=2, data_attention=True))
    (step,) = states(zoo_model(HYBRID), grouped, target(30_000, concurrency=16))
    assert step.changes[0].value == "80"
    wanted = asked(*("--max-mamba-cache-size", "80"), parallel=grouped.parallel)
    found = plan(zoo_model(HYBRID), wanted, parse_machine("h100:2"))
    pool = next(entry for entry in found.ledgers[0].entries if entry.account == "state pool")
    assert pool.why.startswith("40 slots")
