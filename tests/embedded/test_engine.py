"""Turns, waiting and cancelling."""

import time
from typing import Any

import pytest

from tests.embedded.in_process import Driven, greedy, serving


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def running(engine: Driven) -> float:
    return engine.value("draftmark_requests_running")


def waiting(engine: Driven) -> float:
    return engine.value("draftmark_requests_waiting")


def test_requests_wait_in_order_while_the_pool_is_full(lively: dict[str, Any]) -> None:
    sent = [greedy([11] * 30, 40), greedy([12] * 60, 10), greedy([13] * 5, 5)]
    with serving(lively["gqa"], tokens=100, chunk=32) as engine:
        engine.submit(*sent)
        wait_for(lambda: sent[0].output)
        assert (running(engine), waiting(engine)) == (1, 2), "the third would fit, but came after the second"
        assert engine.pool.used == 70
        assert [len(engine.output(request)) for request in sent] == [40, 10, 5]
        wait_for(lambda: engine.pool.used == 0)


def test_no_more_run_at_once_than_allowed(lively: dict[str, Any]) -> None:
    sent = [greedy([20 + number] * 10, 60) for number in range(3)]
    with serving(lively["gqa"], tokens=1000, chunk=32, max_running=2) as engine:
        engine.submit(*sent)
        wait_for(lambda: sent[1].output)
        assert (running(engine), waiting(engine)) == (2, 1)
        assert [len(engine.output(request)) for request in sent] == [60, 60, 60]


def test_decoding_goes_on_while_a_long_prompt_is_prefilled(lively: dict[str, Any]) -> None:
    short, long = greedy([11] * 4, 20), greedy([12] * 600, 1)
    with serving(lively["gqa"], tokens=700, chunk=16) as engine:
        engine.submit(short, long)
        engine.output(short)
        assert long.cache is not None
        assert 0 < long.cache.get_seq_length() < 600
        engine.output(long)


@pytest.mark.parametrize("running_first", [True, False], ids=["while it waits", "while it runs"])
def test_cancelling_gives_the_tokens_back(lively: dict[str, Any], running_first: bool) -> None:
    first, second = greedy([11] * 10, 200), greedy([12] * 10, 900)
    with serving(lively["gqa"], tokens=1000, chunk=32) as engine:
        engine.submit(first if running_first else second)
        wait_for(lambda: running(engine) == 1)
        if running_first:
            engine.submit(second)
            wait_for(lambda: waiting(engine) == 1)
        engine.cancel(second)
        wait_for(lambda: waiting(engine) + running(engine) == (1 if running_first else 0))
        assert engine.pool.used == (210 if running_first else 0)
        if running_first:
            assert len(engine.output(first)) == 200


def test_an_end_token_ends_it_unless_ignored(lively: dict[str, Any]) -> None:
    request = greedy([11] * 10, 20)
    with serving(lively["gqa"], tokens=100, chunk=32) as engine:
        engine.submit(request)
        made = engine.tokens(request)
    ending = made[5]
    kept, ended = greedy([11] * 10, 20), greedy([11] * 10, 20, ignore_eos=False)
    with serving(lively["gqa"], tokens=100, chunk=32, end_tokens=(ending,)) as engine:
        engine.submit(kept, ended)
        assert engine.tokens(kept) == made
        assert engine.tokens(ended) == made[: made.index(ending) + 1]
        assert engine.output(ended)[-1].finish == "stop"


def test_what_was_done_is_counted(lively: dict[str, Any]) -> None:
    request = greedy([11] * 10, 7)
    with serving(lively["gqa"], tokens=100, chunk=4) as engine:
        engine.submit(request)
        engine.output(request)
        wait_for(lambda: engine.value("draftmark_requests_finished_total", reason="length") == 1)
        assert engine.value("draftmark_prompt_tokens_total") == 10
        assert engine.value("draftmark_generated_tokens_total") == 7
        assert engine.value("draftmark_time_to_first_token_seconds_count") == 1
