"""Turns, waiting and cancelling."""

import time
from typing import Any

import pytest

from draftmark.embedded.engine import Engine
from tests.embedded.in_process import greedy, load, output, serving


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def running(engine: Engine) -> float:
    return engine.metrics.value("draftmark_requests_running")


def waiting(engine: Engine) -> float:
    return engine.metrics.value("draftmark_requests_waiting")


def test_requests_wait_in_order_while_the_pool_is_full(lively: dict[str, Any]) -> None:
    loaded = load(lively["gqa"], tokens=100, chunk=32)
    sent = [greedy([11] * 30, 40), greedy([12] * 60, 10), greedy([13] * 5, 5)]
    with serving(loaded) as engine:
        for request, _ in sent:
            engine.submit(request)
        wait_for(lambda: sent[0][0].output)
        assert (running(engine), waiting(engine)) == (1, 2), "the third would fit, but came after the second"
        assert loaded.pool.used == 70
        assert [len(output(tokens)) for _, tokens in sent] == [40, 10, 5]
        wait_for(lambda: loaded.pool.used == 0)


def test_no_more_run_at_once_than_allowed(lively: dict[str, Any]) -> None:
    loaded = load(lively["gqa"], tokens=1000, chunk=32, max_running=2)
    sent = [greedy([20 + number] * 10, 60) for number in range(3)]
    with serving(loaded) as engine:
        for request, _ in sent:
            engine.submit(request)
        wait_for(lambda: sent[1][0].output)
        assert (running(engine), waiting(engine)) == (2, 1)
        assert [len(output(tokens)) for _, tokens in sent] == [60, 60, 60]


def test_decoding_goes_on_while_a_long_prompt_is_prefilled(lively: dict[str, Any]) -> None:
    loaded = load(lively["gqa"], tokens=3000, chunk=16)
    (short, short_tokens), (long, long_tokens) = greedy([11] * 4, 100), greedy([12] * 2000, 1)
    with serving(loaded) as engine:
        engine.submit(short)
        engine.submit(long)
        output(short_tokens)
        assert 0 < long.prefilled < 2000
        output(long_tokens)


@pytest.mark.parametrize("running_first", [True, False], ids=["while it waits", "while it runs"])
def test_cancelling_gives_the_tokens_back(lively: dict[str, Any], running_first: bool) -> None:
    loaded = load(lively["gqa"], tokens=1000, chunk=32)
    (first, first_tokens), (second, _) = greedy([11] * 10, 200), greedy([12] * 10, 900)
    with serving(loaded) as engine:
        engine.submit(first if running_first else second)
        wait_for(lambda: running(engine) == 1)
        if running_first:
            engine.submit(second)
            wait_for(lambda: waiting(engine) == 1)
        engine.cancel(second, reason="cancelled")
        wait_for(lambda: waiting(engine) + running(engine) == (1 if running_first else 0))
        assert loaded.pool.used == (210 if running_first else 0)
        if running_first:
            assert len(output(first_tokens)) == 200


def test_an_end_token_ends_it_unless_ignored(lively: dict[str, Any]) -> None:
    request, tokens = greedy([11] * 10, 20)
    with serving(load(lively["gqa"], tokens=100, chunk=32)) as engine:
        engine.submit(request)
        made = [token.id for token in output(tokens)]
    ending = made[5]
    kept, kept_tokens = greedy([11] * 10, 20, ignore_eos=True)
    ended, ended_tokens = greedy([11] * 10, 20, ignore_eos=False)
    with serving(load(lively["gqa"], tokens=100, chunk=32, end_tokens=(ending,))) as engine:
        engine.submit(kept)
        engine.submit(ended)
        assert [token.id for token in output(kept_tokens)] == made
        last = output(ended_tokens)
    assert [token.id for token in last] == made[: made.index(ending) + 1]
    assert last[-1].finish == "stop"


def test_what_was_done_is_counted(lively: dict[str, Any]) -> None:
    request, tokens = greedy([11] * 10, 7)
    with serving(load(lively["gqa"], tokens=100, chunk=4)) as engine:
        engine.submit(request)
        output(tokens)
        wait_for(lambda: engine.metrics.value("draftmark_requests_finished_total", reason="length") == 1)
        assert engine.metrics.value("draftmark_prompt_tokens_total") == 10
        assert engine.metrics.value("draftmark_generated_tokens_total") == 7
        assert engine.metrics.value("draftmark_time_to_first_token_seconds_count") == 1
