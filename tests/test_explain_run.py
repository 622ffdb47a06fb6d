"""What a step reads, from the model and how it is served."""

from pathlib import Path

import pytest

from draftmark.configuration import Configuration, Parallel, Speculative
from draftmark.explain import ceiling_of, explain_run, reads_of
from draftmark.store import RunRecord
from draftmark.trial import Environment
from tests.report.test_page import filled
from tests.zoo import zoo_model


def run(device: str | None) -> RunRecord:
    here = Environment(draftmark="0.1.0", device=device)
    return RunRecord(
        id=1,
        command="sweep",
        arguments=(),
        environment=here,
        started=0,
        ended=None,
        status=None,
        model=None,
        bandwidth=None,
    )


def test_a_latent_is_read_whole_on_every_gpu() -> None:
    """DeepSeek-V3: 61 layers x 576 elements; the latent is not divided by tensor parallelism."""
    deepseek = zoo_model("deepseek-ai/DeepSeek-V3")
    served = Configuration(engine="sglang", model="m", parallel=Parallel(tensor=8), kv_dtype="bfloat16")
    alone, split = reads_of(deepseek, served), reads_of(deepseek, None)
    assert alone.cache_per_token == 61 * 576 * 2
    assert alone.weights is not None
    assert split.weights is not None
    assert alone.weights < split.weights


def test_a_tree_of_tokens_reads_more_experts() -> None:
    deepseek = zoo_model("deepseek-ai/DeepSeek-V3")
    drafted = Configuration(engine="sglang", model="m", speculative=Speculative(algorithm="EAGLE", draft_tokens=16))
    one, many = reads_of(deepseek, None).weights, reads_of(deepseek, drafted).weights
    assert one is not None
    assert many is not None
    assert many > 3 * one


def test_windows_do_not_grow_and_selections_are_not_guessed() -> None:
    windowed = reads_of(zoo_model("openai/gpt-oss-20b"), None)
    assert windowed.cache_per_token is not None
    assert "in 12 layers" in windowed.why
    sparse = reads_of(zoo_model("deepseek-ai/DeepSeek-V3.2"), None)
    assert sparse.cache_per_token is None
    assert "selects" in sparse.why


def test_the_ceiling_is_what_is_known_best() -> None:
    given, datasheet = ceiling_of(run("NVIDIA H200"), 4000.0), ceiling_of(run("NVIDIA H200"))
    assert given is not None
    assert (given.kind, given.bytes_per_second) == ("given", 4e12)
    assert datasheet is not None
    assert datasheet.kind == "datasheet"
    assert datasheet.bytes_per_second == pytest.approx(4.8e12, rel=0.01)
    assert ceiling_of(run("A card of tomorrow")) is None
    assert ceiling_of(run(None)) is None


def test_a_run_is_explained_from_what_it_kept(tmp_path: Path) -> None:
    explained = explain_run(filled(tmp_path / "d.db"), gigabytes_per_second=10)
    assert explained.growth == "certain"
    assert explained.cache_bandwidth is None
    assert [row.depth for row in explained.rows] == [1012, 4012, 16012]
