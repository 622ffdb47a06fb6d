"""Starts taken in from their logs."""

import json
from pathlib import Path

import msgspec
import pytest

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import plan
from draftmark.planner.history import past_starts
from draftmark.serve.observe import Observed, Seen, keep, look
from draftmark.store import Store
from draftmark.units import GIB
from tests.zoo import DATA, zoo_model

H200 = parse_machine("h200")
QWEN = "Qwen/Qwen3-0.6B"
VLLM = """\
INFO 11-29 20:17:02 [api_server.py:1] vLLM API server version 0.19.0
INFO 11-29 20:17:02 [utils.py:286] non-default args: {'model_tag': 'Qwen/Qwen3-0.6B', 'model': 'Qwen/Qwen3-0.6B', \
'max_model_len': 8192, 'enable_prefix_caching': False, 'speculative_config': {'method': 'ngram', 'model': None}}
INFO 11-29 20:17:03 [gpu_model_runner.py:1] Starting to load model Qwen/Qwen3-0.6B...
INFO 11-29 20:17:04 [gpu_model_runner.py:1] Model loading took 1.12 GiB memory and 0.9 seconds
INFO 11-29 20:17:09 [gpu_worker.py:1] Available KV cache memory: 120.00 GiB
INFO 11-29 20:17:09 [kv_cache_utils.py:1] GPU KV cache size: 1,123,472 tokens
INFO 11-29 20:17:12 [gpu_model_runner.py:1] Graph capturing finished in 3 secs, took 0.60 GiB
"""


def sglang_log(name: str, folder: Path) -> Path:
    lines = (DATA / "sglang-starts" / "starts.jsonl").read_text(encoding="utf-8").splitlines()
    log = next(row["log"] for row in map(json.loads, lines) if row["name"] == name)
    path = folder / f"{name}.log"
    path.write_text(log, encoding="utf-8")
    return path


def kept(store: Store, seen: Seen, model: Model, version: str) -> Observed:
    asked = msgspec.structs.replace(seen.asked.configuration, version=version)
    return keep(store, seen, plan(model, asked, H200), model, H200, ())


def test_sglang_lists_what_it_was_asked_for(tmp_path: Path) -> None:
    seen = look(sglang_log("qwen3-32b-f85-c4096-bs32-fp8kv", tmp_path))
    asked = seen.asked.configuration
    assert seen.engine == "sglang"
    assert (asked.model, asked.memory_fraction, asked.chunk) == ("/models/qwen3-32b", 0.85, 4096)
    assert (asked.kv_dtype, asked.graph_batch, asked.max_running) == ("fp8_e4m3", 32, None)
    assert seen.asked.not_understood == ()


def test_a_draft_is_read_from_the_list_too(tmp_path: Path) -> None:
    speculative = look(sglang_log("mla-mini-mtp", tmp_path)).asked.configuration.speculative
    assert speculative is not None
    assert (speculative.algorithm, speculative.steps, speculative.draft_tokens) == ("EAGLE", 3, 4)


def test_a_start_is_kept_once_and_teaches_the_planner(tmp_path: Path) -> None:
    model = zoo_model(QWEN)
    seen = look(sglang_log("qwen3-0_6b", tmp_path))
    with Store(tmp_path / "runs.db") as store:
        first = kept(store, seen, model, "0.5.15.post1")
        again = kept(store, seen, model, "0.5.15.post1")
        history = past_starts(store)
    assert (first.again, again.again, again.trial) == (False, True, first.trial)
    assert first.pool.tokens == pytest.approx(first.plan.pool.tokens, rel=0.005)
    assert sum(entry.bytes for entry in first.ledgers[0].entries) == H200.device.memory
    (past,) = history
    assert (past.model, past.version, past.speculation) == (QWEN, "0.5.15.post1", None)
    assert past.missed is not None
    assert abs(past.missed) < GIB
    learned = plan(model, seen_configuration(seen), H200, history=history)
    assert any("one past start" in note for note in learned.notes)


def seen_configuration(seen: Seen) -> Configuration:
    return msgspec.structs.replace(seen.asked.configuration, version="0.5.15.post1")


def test_vllm_lists_what_differs_from_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM, encoding="utf-8")
    seen = look(path)
    asked = seen.asked.configuration
    assert (seen.engine, asked.version, asked.model, asked.context) == ("vllm", "0.19.0", QWEN, 8192)
    assert asked.flags == ("--no-enable-prefix-caching",)
    assert asked.speculative is not None
    assert asked.speculative.algorithm == "ngram"
    plain = msgspec.structs.replace(
        seen, asked=msgspec.structs.replace(seen.asked, configuration=msgspec.structs.replace(asked, speculative=None))
    )
    with Store(tmp_path / "runs.db") as store:
        found = kept(store, plain, zoo_model(QWEN), "0.19.0")
    assert found.pool.tokens == 1_123_472
    assert found.ledgers[0].amount("pool") == 120 * GIB
    assert found.ledgers[0].amount("graphs") == round(0.6 * GIB)


def test_the_embedded_engine_states_its_numbers() -> None:
    seen = look(DATA / "embedded" / "ready.log")
    assert seen.engine == "embedded"
    assert seen.asked.configuration.chunk is not None
    assert seen.asked.configuration.version is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("", "no start"), (VLLM[: VLLM.index("INFO 11-29 20:17:09")], "no start")],
)
def test_a_log_that_says_too_little(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "x.log"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        look(path)
