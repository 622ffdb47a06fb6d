"""Real engines: what the sweep says and what their own counters say agree within 2 %."""

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftmark.configuration import Configuration
from draftmark.engines.metrics import Counters, counters
from draftmark.errors import BadInput
from draftmark.sample import Sample
from draftmark.serve import Place, Server, serve
from draftmark.sweep import Options, Sweep, sweep
from draftmark.units import Tokens

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not find_spec("torch") or not find_spec("transformers"), reason="needs draftmark[local]"),
]
VENV = Path(os.environ.get("DRAFTMARK_VLLM", Path(__file__).parents[2] / ".venv-vllm"))
DEPTHS = (200, 600, 1500)
OPTIONS = Options(repeats=2, most_repeats=3, output=Tokens(24))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    from draftmark.embedded import tiny

    folder = tmp_path_factory.mktemp("tiny") / "gqa"
    tiny.write(folder, tiny.gqa())
    return str(folder)


@pytest.fixture(scope="module")
def embedded(checkpoint: str) -> Iterator[Server]:
    configuration = Configuration(engine="embedded", model=checkpoint, device="cpu", pool_tokens=Tokens(8000))
    with serve(configuration) as server:
        yield server


@pytest.fixture(scope="module")
def vllm(checkpoint: str) -> Iterator[Server]:
    if not list(VENV.glob("complete-*")):
        pytest.skip(f"no real vLLM in {VENV}: run scripts/setup_vllm_cpu.sh")
    configuration = Configuration(
        engine="vllm",
        model=checkpoint,
        device="cpu",
        context=Tokens(4096),
        dtype="float32",
        graphs=False,
        flags=("--enable-prompt-tokens-details",),
        environment=(("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")),
    )
    with serve(configuration, place=Place(python=str(VENV / "bin" / "python"))) as server:
        yield server


def measured(server: Server, options: Options) -> tuple[Sweep, Counters, tuple[float, float]]:
    """A sweep, what the engine counted meanwhile, and the sum and number of its own times to first token."""
    with httpx.Client() as http:
        before, first = counters(http, server.url), first_tokens(http, server.url)
        result = sweep(server.url, DEPTHS, options, sink=lambda point: None)
        now, last = counters(http, server.url), first_tokens(http, server.url)
    assert before is not None
    assert now is not None
    return result, now.since(before), (last[0] - first[0], last[1] - first[1])


def first_tokens(http: httpx.Client, url: str) -> tuple[float, float]:
    found = {"sum": 0.0, "count": 0.0}
    for family in text_string_to_metric_families(http.get(f"{url}/metrics").text):
        for sample in family.samples:
            for kind in found:
                if sample.name.endswith(f"time_to_first_token_seconds_{kind}"):
                    found[kind] += sample.value
    return found["sum"], found["count"]


def agree(result: Sweep, counted: Counters, first: tuple[float, float]) -> None:
    """Tokens of all samples and of the few requests before them, and the mean TTFT, are the engine's own."""
    samples = [sample for point in result.points for sample in point.samples]
    assert [point.invalid for point in result.points] == [None] * len(DEPTHS)
    assert {sample.prompt_tokens for point in result.points for sample in point.measured} == set(DEPTHS)
    assert counted.prompt == pytest.approx(total(samples, "prompt_tokens"), rel=0.02, abs=60)
    assert counted.generated == pytest.approx(total(samples, "completion_tokens"), rel=0.02, abs=12)
    ours = sum(sample.ttft or 0.0 for sample in samples)
    assert first[0] == pytest.approx(ours, rel=0.02, abs=0.06 * first[1]), (
        "60 ms a request for the web server of a busy CPU"
    )


def total(samples: list[Sample], name: str) -> int:
    return sum(getattr(sample, name) or 0 for sample in samples)


def test_the_embedded_engine(embedded: Server) -> None:
    result, counted, first = measured(embedded, OPTIONS)
    assert (result.state.engine, result.state.pool_tokens) == ("embedded", 8000)
    assert result.dialect.token_ids
    assert all(sample.counted_by == "usage per chunk" for point in result.points for sample in point.measured)
    agree(result, counted, first)


def test_a_depth_beyond_the_embedded_engines_pool_is_not_sent(embedded: Server) -> None:
    largest = 8000 - 24
    with pytest.raises(BadInput, match=f"the largest that fits is {largest:,}"):
        sweep(embedded.url, (7990,), OPTIONS, sink=lambda point: None)
    at_the_limit = msgspec.structs.replace(OPTIONS, repeats=1, most_repeats=1, warm_up=0, output=Tokens(24))
    held = sweep(embedded.url, (largest,), at_the_limit, sink=lambda point: None)
    assert [point.invalid for point in held.points] == [None]


def test_vllm(vllm: Server) -> None:
    result, counted, first = measured(vllm, OPTIONS)
    assert result.state.engine == "vllm"
    assert result.state.pool_tokens == 2**30 // (4 * 2 * 4 * 64 * 4), "1 GiB of keys and values of 4 heads in 4 layers"
    assert result.refusals == ()
    agree(result, counted, first)
    assert all("not proved" not in flag for point in result.points for flag in point.flags)


def test_so_many_streams_as_vllms_pool_cannot_hold_are_not_sent(vllm: Server) -> None:
    options = msgspec.structs.replace(OPTIONS, concurrency=(40,))
    with pytest.raises(BadInput, match=r"40 x 4,096 tokens .* exceed the pool of 130,944"):
        sweep(vllm.url, (4000,), options, sink=lambda point: None)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_warm_curve_on_vllm_reuses_its_prefix(vllm: Server, api: str) -> None:
    options = msgspec.structs.replace(OPTIONS, mode="warm", api=api)
    result = sweep(vllm.url, DEPTHS, options, sink=lambda point: None)
    assert [point.invalid for point in result.points] == [None] * len(DEPTHS)
    fresh = sum(
        (sample.prompt_tokens or 0) - (sample.cached_tokens or 0)
        for point in result.points
        for sample in point.measured[:1]
    )
    assert fresh <= 1.3 * DEPTHS[-1]
    assert json.loads(msgspec.json.encode(result))["points"]
