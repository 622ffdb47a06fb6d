"""What SGLang and vLLM say of themselves over HTTP, from real answers."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from draftmark.configuration import Configuration
from draftmark.engines.known import NAMES
from draftmark.engines.probe import ORDER, probe
from draftmark.engines.sglang import Sglang
from draftmark.engines.vllm import Vllm
from draftmark.units import GIB, Tokens

STARTS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "sglang-starts" / "starts.jsonl").read_text().splitlines()
]
READY = [row for row in STARTS if row.get("server_info")]

METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",engine="0",gpu_memory_utilization="0.92",kv_cache_size_tokens="1048576",\
num_gpu_blocks="8192"} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79598344e+09
"""
CARD = {"id": "/models/tiny", "object": "model", "owned_by": "vllm", "max_model_len": 2048}


def answering(answers: dict[str, Any]) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        body = answers.get(request.url.path)
        if body is None:
            return httpx.Response(404)
        return httpx.Response(200, text=body) if isinstance(body, str) else httpx.Response(200, json=body)

    return httpx.Client(transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("row", READY, ids=[row["name"] for row in READY])
def test_real_answers_of_sglang(row: dict[str, Any]) -> None:
    info = row["server_info"]
    state = Sglang().probe(answering({"/server_info": info}), "http://host:1")
    assert state is not None
    assert (state.engine, state.version) == ("sglang", "0.5.15.post1")
    assert state.pool_tokens == info["internal_states"][0]["memory_usage"]["token_capacity"]
    assert state.page == info["page_size"]
    weights = next(seen.value for seen in state.observations if seen.quantity == "weights")
    assert weights == round(info["internal_states"][0]["memory_usage"]["weight"] * GIB)


@pytest.mark.parametrize("row", READY, ids=[row["name"] for row in READY])
def test_what_a_request_may_have_in_real_answers_of_sglang(row: dict[str, Any]) -> None:
    info = row["server_info"]
    state = Sglang().probe(answering({"/server_info": info}), "http://host:1")
    assert state is not None
    assert (state.longest_prompt, state.ranks) == (info["max_req_input_len"] - 1, 1)
    context = info["max_req_input_len"] + 6
    assert context % 4096 == 0, "none of these pools is smaller than its model's context"
    assert state.longest_request == context - 2
    assert state.max_running == info["internal_states"][0]["effective_max_running_requests_per_dp"]
    assert state.draft_tokens == info["speculative_num_draft_tokens"]


def test_ranks_of_sglang_have_a_pool_and_a_limit_each() -> None:
    info = json.loads(json.dumps(READY[0]["server_info"]))
    first = info["internal_states"][0]
    second = json.loads(json.dumps(first))
    second["memory_usage"]["token_capacity"] -= 5000
    second["effective_max_running_requests_per_dp"] -= 7
    info |= {"dp_size": 2, "internal_states": [first, second]}
    state = Sglang().probe(answering({"/server_info": info}), "http://host:1")
    assert state is not None
    assert state.ranks == 2
    assert state.pool_tokens == first["memory_usage"]["token_capacity"] - 5000
    assert state.max_running == first["effective_max_running_requests_per_dp"] - 7


def test_there_are_real_answers() -> None:
    assert len(READY) >= 10


def test_sglang_before_0_5_3_answers_at_another_path() -> None:
    old = {
        "model_path": "m",
        "mem_fraction_static": 0.88,
        "max_total_num_tokens": 1000,
        "internal_states": [{"memory_usage": {"weight": 1.0, "kvcache": 2.0, "cuda_graph": 0.5}}],
    }
    state = Sglang().probe(answering({"/get_server_info": old}), "http://host:1")
    assert state is not None
    assert state.pool_tokens == 1000
    assert {seen.quantity: seen.value for seen in state.observations}["graphs"] == GIB // 2


def test_graphs_by_phase_are_added_up() -> None:
    new = {
        "model_path": "m",
        "mem_fraction_static": 0.88,
        "internal_states": [{"memory_usage": {"graph": {"prefill": 1.0, "decode": 0.5}, "startup_available": 3.0}}],
    }
    state = Sglang().probe(answering({"/server_info": new}), "http://host:1")
    assert state is not None
    assert {seen.quantity: seen.value for seen in state.observations}["graphs"] == 3 * GIB // 2


@pytest.mark.parametrize("answers", [{}, {"/server_info": {"engine": "draftmark.embedded"}}, {"/server_info": "hello"}])
def test_other_servers_are_not_sglang(answers: dict[str, Any]) -> None:
    assert Sglang().probe(answering(answers), "http://host:1") is None


def test_vllm_by_models_version_and_metrics() -> None:
    answers = {"/v1/models": {"data": [CARD]}, "/version": {"version": "0.32.0"}, "/metrics": METRICS}
    state = Vllm().probe(answering(answers), "http://host:1")
    assert state is not None
    assert (state.engine, state.version, state.models, state.context) == ("vllm", "0.32.0", ("/models/tiny",), 2048)
    assert (state.pool_tokens, state.page, state.started) == (1048576, 128, 1.79598344e9)
    assert {seen.quantity: seen.value for seen in state.observations} == {
        "blocks": 8192,
        "page": 128,
        "memory_fraction": 0.92,
    }


def _labels(**labels: str) -> str:
    return "vllm:cache_config_info{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "} 1.0\n"


POOLS = {
    "stated": (_labels(block_size="128", num_gpu_blocks="1024", kv_cache_size_tokens="131072"), 131072, 1),
    "by blocks": (_labels(block_size="16", num_gpu_blocks="500", sliding_window="None"), 8000, 1),
    "stated as None": (_labels(block_size="16", num_gpu_blocks="500", kv_cache_size_tokens="None"), 8000, 1),
    "of a window": (_labels(block_size="16", num_gpu_blocks="500", sliding_window="4096"), None, 1),
    "not yet": (_labels(block_size="16", num_gpu_blocks="None"), None, 1),
    "two engines": (
        "".join(_labels(engine=engine, block_size="16", num_gpu_blocks="500") for engine in "01"),
        4000,
        2,
    ),
    "two engines, stated": (
        "".join(_labels(engine=e, block_size="16", num_gpu_blocks="500", kv_cache_size_tokens="3900") for e in "01"),
        3900,
        2,
    ),
    "no Prometheus text": ("<html>{</html>", None, 1),
}


@pytest.mark.parametrize(("metrics", "pool", "ranks"), POOLS.values(), ids=POOLS)
def test_the_pool_of_vllm_whatever_it_states_it_by(metrics: str, pool: int | None, ranks: int) -> None:
    state = Vllm().probe(answering({"/v1/models": {"data": [CARD]}, "/metrics": metrics}), "http://host:1")
    assert state is not None
    assert (state.pool_tokens, state.ranks) == (pool, ranks)


def test_vllm_in_its_developers_mode_says_its_limits() -> None:
    resolved = {
        "scheduler_config": {"max_num_seqs": 128, "max_num_batched_tokens": 2048},
        "speculative_config": {"num_speculative_tokens": 3},
    }
    answers = {"/v1/models": {"data": [CARD]}, "/server_info": {"vllm_config": resolved, "vllm_env": {}}}
    state = Vllm().probe(answering(answers), "http://host:1")
    assert state is not None
    assert (state.max_running, state.chunk, state.draft_tokens) == (128, 2048, 3)
    assert state.cache_flush == "/reset_prefix_cache"


@pytest.mark.parametrize("info", [None, "text", {"vllm_config": "model='m', ..."}, {"vllm_config": {}}, TimeoutError])
def test_vllm_that_says_less_is_still_vllm(info: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [CARD]})
        if request.url.path != "/server_info" or info is None:
            return httpx.Response(404)
        if info is TimeoutError:
            raise httpx.ReadTimeout("it looks over the machine", request=request)
        return httpx.Response(200, json=info)

    state = Vllm().probe(httpx.Client(transport=httpx.MockTransport(answer)), "http://host:1")
    assert state is not None
    assert (state.engine, state.max_running, state.draft_tokens) == ("vllm", None, None)


def test_vllm_without_metrics_still_answers() -> None:
    state = Vllm().probe(answering({"/v1/models": {"data": [CARD]}}), "http://host:1")
    assert state is not None
    assert (state.version, state.pool_tokens, state.page) == (None, None, None)


@pytest.mark.parametrize(
    "answers", [{}, {"/v1/models": {"data": [{**CARD, "owned_by": "sglang"}]}}, {"/v1/models": "x"}]
)
def test_other_servers_are_not_vllm(answers: dict[str, Any]) -> None:
    assert Vllm().probe(answering(answers), "http://host:1") is None


def test_the_command_of_vllm_states_its_memory_in_the_log() -> None:
    configuration = Configuration(engine="vllm", model="m", memory_fraction=0.9, context=Tokens(8192), graphs=False)
    command = Vllm().command(configuration, python="py", host="h", port=1)
    assert command.argv[:5] == ("py", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
    assert ("VLLM_LOGGING_LEVEL", "DEBUG") in command.environment
    pasted = Vllm().parse_command(command.argv, command.environment)
    assert pasted.configuration.memory_fraction == 0.9
    assert pasted.configuration.graphs is False


def test_a_logging_level_that_the_user_set_stays() -> None:
    configuration = Configuration(engine="vllm", model="m", environment=(("VLLM_LOGGING_LEVEL", "INFO"),))
    command = Vllm().command(configuration, python="py", host="h", port=1)
    assert command.environment == (("VLLM_LOGGING_LEVEL", "INFO"),)


def test_the_command_of_sglang_turns_metrics_on_once() -> None:
    configuration = Configuration(engine="sglang", model="m", chunk=Tokens(4096), flags=("--enable-metrics",))
    command = Sglang().command(configuration, python="py", host="h", port=1)
    assert command.argv[:5] == ("py", "-m", "sglang.launch_server", "--model-path", "m")
    assert command.argv.count("--enable-metrics") == 1
    assert Sglang().parse_command(command.argv, ()).configuration.chunk == 4096


def test_every_engine_is_asked() -> None:
    assert sorted(ORDER) == sorted(NAMES)


@pytest.mark.parametrize(("owner", "engine"), [("vllm", "vllm"), ("someone", None)])
def test_silence_on_an_engines_own_questions_is_no_silence_on_its_models(owner: str, engine: str | None) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{**CARD, "owned_by": owner}]})
        if "server_info" not in request.url.path:
            return httpx.Response(404)
        raise httpx.ReadTimeout("it looks over the machine", request=request)

    state = probe(httpx.Client(transport=httpx.MockTransport(answer)), "http://host:1")
    assert state is not None
    assert (state.engine, state.models, state.context) == (engine, ("/models/tiny",), 2048)
