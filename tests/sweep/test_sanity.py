import json
import math
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from draftmark.sample import Point
from draftmark.selftest.model import Setup
from draftmark.selftest.process import GroundTruth
from draftmark.sweep import Options, sweep
from draftmark.sweep.sanity import Sanity, ask, flag, judge, planted
from draftmark.units import Tokens

from .conftest import FAST


def answer(text: str, logprobs: list[float | None] | None = None) -> bytes:
    tokens = text.split()
    found = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens) if logprobs is None else logprobs}
    return json.dumps({"choices": [{"text": text, "logprobs": found}]}).encode()


SOUND = "It is 123456 and the harbour is quiet tonight"


def seen(content: bytes, depth: int = 1000) -> Sanity:
    found = judge(content, depth=depth, number=123456)
    assert found is not None
    return found


def test_a_sound_answer_is_not_flagged() -> None:
    first = seen(answer(SOUND))
    assert (first.found, first.finite, first.varied) == (True, True, True)
    assert flag(first, first) is None


def test_chats_are_read_as_well() -> None:
    content = {
        "choices": [{"message": {"content": "123,456"}, "logprobs": {"content": [{"token": "1", "logprob": 0}]}}]
    }
    found = seen(json.dumps(content).encode())
    assert (found.found, found.finite, found.varied) == (True, True, None)


def test_a_fact_lost_at_depth_is_flagged_only_where_it_was_found_before() -> None:
    first, deep = seen(answer(SOUND)), seen(answer(SOUND.replace("123456", "none")), depth=9000)
    assert "found at 1,000 tokens" in str(flag(deep, first))
    assert "cannot be told" in str(flag(deep, deep))
    assert flag(seen(answer("none of it is there or here at all")), deep) is None


def test_garbage_is_flagged() -> None:
    first = seen(answer(SOUND))
    assert "over and over" in str(flag(seen(answer("! " * 20)), first))
    nan = seen(answer(SOUND, [math.nan]))
    assert nan.finite is False
    assert "not finite" in str(flag(nan, first))
    assert "not finite" in str(flag(seen(answer(SOUND, [None])), first))
    assert "not checked" in str(flag(None, first))


def test_the_fact_lies_between_two_lines() -> None:
    text = planted("one\ntwo\nthree\nfour\n", 123456)
    assert "\nThe harbour master's number is 123456.\n" in text
    assert text.endswith("number is")


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("refuses", "finite"), [((), True), (("logprobs",), None)])
def test_a_server_without_log_probabilities_is_asked_all_the_same(
    route: str, refuses: tuple[str, ...], finite: bool | None
) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        body: dict[str, Any] = json.loads(request.content)
        if set(refuses) & set(body):
            return httpx.Response(400, json={"error": {"message": "logprobs are not supported"}})
        content = answer(SOUND) if "logprobs" in body else json.dumps({"choices": [{"text": SOUND}]}).encode()
        return httpx.Response(200, content=content)

    server = SimpleNamespace(
        dialect=SimpleNamespace(route=route, model="m", limit="max_tokens"),
        state=SimpleNamespace(url="http://host:1"),
        http=httpx.Client(transport=httpx.MockTransport(reply)),
    )
    maker = SimpleNamespace(text=lambda about: "a line\n" * about)
    found = ask(cast("Any", server), cast("Any", maker), 1000, seed=1, patience=1.0)
    assert found is not None
    assert (found.finite, found.text) == (finite, SOUND)


@pytest.mark.parametrize("concurrency", [(1,), (3,), (1, 3)])
def test_sanity_is_asked_once_a_depth_at_any_load(server: GroundTruth, concurrency: tuple[int, ...]) -> None:
    server.control(Setup(pace=FAST))
    options = Options(warm_up=0, repeats=1, most_repeats=1, output=Tokens(4), sanity=True, concurrency=concurrency)
    points: list[Point] = []
    sweep(server.url, (300, 600), options, sink=points.append)
    told = [any("planted fact" in one for one in point.flags) for point in points]
    assert told == [True, False] * len(concurrency) if len(concurrency) == 1 else [True, False, False, False]
