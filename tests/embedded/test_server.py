"""The HTTP interface of a live server."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.embedded.process import Running, server

pytestmark = pytest.mark.engine

PROMPT = [11, 300, 301, 302]


@pytest.fixture(scope="module")
def live(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("live") / "log"
    arguments = ("--model", str(checkpoints / "gqa"), "--pool-tokens", "1000", "--served-model-name", "tiny")
    with server(log, *arguments, "--context", "3000", "--chunk", "128", "--device", "cpu") as running:
        yield running
    assert "Warning" not in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.fixture
def client(live: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        yield client


def complete(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={"prompt": PROMPT, "temperature": 0, "max_tokens": 8, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def events(client: httpx.Client, path: str = "/v1/completions", **fields: Any) -> list[dict[str, Any]]:
    body = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "stream": True, **fields}
    with client.stream("POST", path, json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def metric(client: httpx.Client, name: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return next(sample.value for family in families for sample in family.samples if sample.name == name)


def wait_for(client: httpx.Client, name: str, value: float) -> None:
    until = time.monotonic() + 60
    while metric(client, name) != value:
        assert time.monotonic() < until, f"{name} is {metric(client, name)}"
        time.sleep(0.01)


def test_text_token_ids_and_lists_of_one_are_the_same_prompt(client: httpx.Client) -> None:
    text = client.post("/detokenize", json={"tokens": PROMPT}).json()["prompt"]
    ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert ids == [1, *PROMPT]
    made = [complete(client, prompt=prompt)["choices"] for prompt in (text, ids, [text], [ids])]
    assert made[0] == made[1] == made[2] == made[3]
    assert made[0][0]["text"]


def test_a_stream_says_the_same_as_the_whole(client: httpx.Client) -> None:
    whole = complete(client, ignore_eos=True, return_token_ids=True)
    streamed = events(client, prompt=PROMPT, return_token_ids=True, stream_options={"include_usage": True})
    pieces, last = streamed[:-1], streamed[-1]
    choice = whole["choices"][0]
    assert len(pieces) == 8, "one event a token"
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == choice["text"]
    assert [token for piece in pieces for token in piece["choices"][0]["token_ids"]] == choice["token_ids"]
    assert pieces[0]["choices"][0]["prompt_token_ids"] == choice["prompt_token_ids"] == PROMPT
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None] * 7 + ["length"]
    assert last["choices"] == []
    assert last["usage"] == whole["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 8,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip
    assert not any("usage" in piece for piece in pieces)


def test_usage_per_chunk(client: httpx.Client) -> None:
    streamed = events(client, prompt=PROMPT, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert [event["usage"]["completion_tokens"] for event in streamed] == [1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_chat_whole_and_streamed(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "badu"}, {"type": "text", "text": " hi"}]}]
    body = {"messages": messages, "temperature": 0, "max_completion_tokens": 6, "ignore_eos": True}
    whole = client.post("/v1/chat/completions", json=body).json()
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"]["role"] == "assistant"
    streamed = events(client, "/v1/chat/completions", **body)
    deltas = [event["choices"][0]["delta"] for event in streamed]
    assert "".join(delta["content"] for delta in deltas) == whole["choices"][0]["message"]["content"]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * 5
    tokens = client.post("/tokenize", json={"messages": messages}).json()
    assert whole["usage"]["prompt_tokens"] == tokens["count"] == len(tokens["tokens"])
    text = client.post("/detokenize", json={"tokens": tokens["tokens"]}).json()["prompt"]
    assert text == "<s><|user|>badu hi\n<|assistant|>"


def test_a_stop_string_ends_it_and_is_not_sent(client: httpx.Client) -> None:
    text = complete(client, max_tokens=40, ignore_eos=True)["choices"][0]["text"]
    stop = text[len(text) // 2 :][:3]
    made = complete(client, max_tokens=40, ignore_eos=True, stop=stop)
    assert made["choices"][0]["text"] == text[: text.find(stop)]
    assert made["choices"][0]["finish_reason"] == "stop"
    assert made["usage"]["completion_tokens"] < 40


def test_a_seed_repeats(client: httpx.Client) -> None:
    made = [complete(client, temperature=1.5, seed=seed, max_tokens=20)["choices"][0]["text"] for seed in (5, 5, 6)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", {"prompt": [11] * 10, "max_tokens": 2991}, 400, ("3001", "context", "3000")),
        ("/v1/completions", {"prompt": [11] * 900, "max_tokens": 101}, 400, ("1001", "pool", "1000")),
        ("/v1/completions", {"prompt": "x", "model": "other"}, 404, ("other", "tiny")),
        ("/v1/completions", {"prompt": 5}, 422, ("prompt",)),
        ("/v1/completions", {}, 422, ("prompt",)),
        ("/v1/completions", {"messages": [{"role": "user", "content": "x"}]}, 422, ("prompt",)),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, ("2 prompts",)),
        ("/v1/completions", {"prompt": [2048]}, 400, ("2048", "vocabulary")),
        ("/v1/completions", {"prompt": []}, 400, ("empty",)),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, ("max_tokens=0",)),
        ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, ("temperature",)),
        ("/v1/completions", {"prompt": "x", "top_p": 0}, 400, ("top_p",)),
        ("/v1/completions", {"prompt": "x", "n": 2}, 400, ("n=2",)),
        ("/v1/completions", {"prompt": "x", "logprobs": 3}, 400, ("logprobs=3",)),
        ("/v1/completions", [1], 422, ("object",)),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"image_url": "x"}]}]}, 400, ("text",)),
        ("/v1/chat/completions", {"prompt": "x"}, 422, ("messages",)),
        ("/detokenize", {}, 422, ("tokens",)),
        ("/tokenize", {}, 400, ("prompt or messages",)),
        ("/nothing", {}, 404, ("/nothing",)),
    ],
)
def test_refusals(client: httpx.Client, path: str, body: Any, status: int, says: tuple[str, ...]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert all(word in error["message"] for word in says), error["message"]


def test_a_stream_is_refused_before_it_begins(client: httpx.Client) -> None:
    for wrong in ({"max_tokens": 9000}, {"temperature": 9}):
        answer = client.post("/v1/completions", json={"prompt": PROMPT, "stream": True, **wrong})
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/json"


def test_a_body_that_is_not_json(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", content=b"{")
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_is_not_served_on(client: httpx.Client, live: Running, stream: bool) -> None:
    body = {"prompt": [11] * 100, "max_tokens": 800, "ignore_eos": True, "stream": stream}
    before = metric(client, "draftmark_generated_tokens_total")
    try:
        with (
            httpx.Client(base_url=live.url, timeout=60 if stream else 0.5) as leaving,
            leaving.stream("POST", "/v1/completions", json=body) as answer,
        ):
            next(answer.iter_lines())
    except httpx.ReadTimeout:
        assert not stream
    wait_for(client, "draftmark_requests_running", 0)
    wait_for(client, "draftmark_pool_used_tokens", 0)
    assert metric(client, "draftmark_generated_tokens_total") - before < 800


def test_requests_wait_for_the_pool_and_all_are_served(client: httpx.Client) -> None:
    made: list[dict[str, Any]] = []
    fields = {"prompt": [11] * 440, "max_tokens": 50, "ignore_eos": True}
    asks = [threading.Thread(target=lambda: made.append(complete(client, **fields))) for _ in range(4)]
    for ask in asks:
        ask.start()
    wait_for(client, "draftmark_requests_running", 2)
    wait_for(client, "draftmark_requests_waiting", 2)
    assert metric(client, "draftmark_pool_used_tokens") == 2 * 490
    for ask in asks:
        ask.join()
    assert len(made) == 4
    assert len({one["choices"][0]["text"] for one in made}) == 1


def test_what_it_says_of_itself(client: httpx.Client, live: Running) -> None:
    info = client.get("/server_info").json()
    settled = {
        "engine": "draftmark.embedded",
        "device": "cpu",
        "dtype": "float32",
        "context_length": 3000,
        "chunk": 128,
        "page": 1,
        "max_running": 8,
        "pool_tokens": 1000,
        "bytes_per_token": 8192,
        "pool_bytes": 1000 * 8192,
        "mem_fraction": None,
        "prefix_cache": False,
    }
    assert {name: info[name] for name in settled} == settled
    assert info["threads"] >= 1
    assert 0 < time.time() - info["started"] < 3600
    models = client.get("/v1/models").json()
    assert [(model["id"], model["max_model_len"]) for model in models["data"]] == [("tiny", 3000)]
    assert client.get("/health").status_code == 200
