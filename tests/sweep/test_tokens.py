"""Who counts tokens, and what is said where nobody answers."""

import json

import httpx
import pytest

from draftmark.sweep.server import silence
from draftmark.sweep.tokens import UsageCounter


@pytest.mark.parametrize("greedy", [True, False])
def test_a_counting_request_is_greedy_where_the_server_takes_a_temperature(greedy: bool) -> None:
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"usage": {"prompt_tokens": len(bodies[-1]["prompt"]) + 1}})

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        counter = UsageCounter(http, "http://server", "/v1/completions", "m", greedy=greedy)
        assert counter.count("four", special=True) == 5
        assert counter.count("four", special=False) == 4
    assert {body.get("temperature") for body in bodies} == ({0} if greedy else {None})


@pytest.mark.parametrize("kind", [httpx.ReadTimeout, httpx.ConnectTimeout, httpx.WriteTimeout, httpx.PoolTimeout])
def test_a_slow_answer_is_not_called_a_dead_server(kind: type[httpx.TimeoutException]) -> None:
    assert "in time" in silence(kind("timed out"))


def test_a_broken_connection_is() -> None:
    assert silence(httpx.RemoteProtocolError("peer closed")) == "the server no longer answers (peer closed)"
