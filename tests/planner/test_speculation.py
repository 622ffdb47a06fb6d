"""Speculation: an invented draft is never planned."""

from typing import Any

import msgspec
import pytest

from draftmark.configuration import Configuration, EngineName, Parallel, Speculative
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import Plan, plan
from draftmark.planner.speculation import implied
from tests.zoo import zoo_model

LLAMA, DEEPSEEK = "meta-llama/Meta-Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"
VLLM: dict[str, Any] = {"draft_tokens": 3}


def planned(
    engine: EngineName, name: str, draft: Model | None = None, version: str | None = None, **asked: object
) -> Plan:
    speculative = Speculative(**asked)  # type: ignore[arg-type]
    many = 8 if name == DEEPSEEK else 1
    wanted = Configuration(
        engine=engine, model=name, version=version, speculative=speculative, parallel=Parallel(tensor=many)
    )
    return plan(zoo_model(name), wanted, parse_machine(f"h200:{many}"), draft=draft)


def head(architecture: str = "LlamaForCausalLMEagle3") -> Model:
    """A draft of one layer."""
    model = zoo_model(LLAMA)
    return msgspec.structs.replace(model, name="draft", architecture=architecture, layers=model.layers[:1], weights=())


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "eagle3"])
def test_sglang_wants_a_draft_model(algorithm: str) -> None:
    with pytest.raises(BadInput, match=r"needs a draft model, and meta-llama/Meta-Llama-3\.1-8B has no draft layers"):
        planned("sglang", LLAMA, algorithm=algorithm)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "deepseek_mtp", "draft_model", "dflash"])
def test_vllm_wants_a_draft_model(method: str) -> None:
    with pytest.raises(BadInput, match=r"needs a draft model, and meta-llama/Meta-Llama-3\.1-8B has no draft layers"):
        planned("vllm", LLAMA, algorithm=method, **VLLM)


@pytest.mark.parametrize(
    ("engine", "algorithm", "works"),
    [
        ("sglang", "EAGLE", True),
        ("sglang", "NEXTN", True),
        ("sglang", "EAGLE3", False),
        ("sglang", "STANDALONE", False),
        ("vllm", "mtp", True),
        ("vllm", "deepseek_mtp", True),
        ("vllm", "eagle", False),
    ],
)
def test_a_model_with_draft_layers_drafts_with_them_where_the_algorithm_can(
    engine: EngineName, algorithm: str, works: bool
) -> None:
    if not works:
        with pytest.raises(BadInput, match="needs a draft model"):
            planned(engine, DEEPSEEK, algorithm=algorithm, **VLLM)
        return
    found = planned(engine, DEEPSEEK, algorithm=algorithm, **VLLM)
    assert "draft weights" in {entry.account for entry in found.ledgers[0].entries}


@pytest.mark.parametrize(
    ("engine", "version", "algorithm", "message"),
    [
        ("sglang", None, "FOO", "sglang 0.5.23 has no 'FOO'; known: DFLASH, "),
        ("sglang", "0.5.1.post3", "STANDALONE", "sglang has it from 0.5.2 on; known: EAGLE, EAGLE3, NEXTN"),
        ("sglang", None, "UNO", "it is not known what UNO takes"),
        ("vllm", None, "magic", "vllm 0.33.0 has no 'magic'"),
        ("vllm", "0.8.5", "eagle3", "vllm has it from 0.9.1 on"),
        ("vllm", None, "dspark", "it is not known what dspark takes"),
    ],
)
def test_unknown_algorithms_are_refused_by_name(
    engine: EngineName, version: str | None, algorithm: str, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        planned(engine, LLAMA, head(), version, algorithm=algorithm, **VLLM)
    assert message in str(caught.value)


@pytest.mark.parametrize(("engine", "algorithm"), [("sglang", "NGRAM"), ("vllm", "ngram"), ("vllm", "suffix")])
def test_drafts_out_of_the_text_take_neither_weights_nor_cache(engine: EngineName, algorithm: str) -> None:
    found = planned(engine, LLAMA, algorithm=algorithm, **VLLM)
    assert not {"draft weights", "draft pool"} & {entry.account for entry in found.ledgers[0].entries}


@pytest.mark.parametrize("field", ["steps", "top_k", "draft_tokens", "window"])
@pytest.mark.parametrize(("engine", "algorithm"), [("sglang", "EAGLE3"), ("vllm", "eagle3")])
def test_counts_that_cannot_be(engine: EngineName, algorithm: str, field: str) -> None:
    with pytest.raises(BadInput, match="is less than 1"):
        planned(engine, LLAMA, head(), algorithm=algorithm, **{**VLLM, field: 0})


def test_vllm_wants_the_number_of_drafted_tokens() -> None:
    with pytest.raises(BadInput, match="num_speculative_tokens is missing"):
        planned("vllm", LLAMA, head(), algorithm="eagle3")


@pytest.mark.parametrize(
    ("version", "name", "algorithm", "counts"),
    [
        ("0.5.23", LLAMA, "EAGLE3", (5, 4, 8)),
        ("0.5.23", LLAMA, "STANDALONE", (3, 1, 4)),
        ("0.5.23", DEEPSEEK, "EAGLE", (3, 1, 4)),
        ("0.5.23", "Qwen/Qwen3-8B", "EAGLE3", (3, 1, 4)),
        ("0.5.7", "Qwen/Qwen3-8B", "EAGLE3", (5, 4, 8)),
        ("0.5.7", DEEPSEEK, "EAGLE", (3, 1, 4)),
    ],
)
def test_sglangs_own_counts_are_filled_in(
    version: str, name: str, algorithm: str, counts: tuple[int, int, int]
) -> None:
    """auto_choose_speculative_params in the wheels 0.5.7 and 0.5.23."""
    found = planned("sglang", name, None if name == DEEPSEEK else head(), version, algorithm=algorithm)
    asked = found.configuration.speculative
    assert asked is not None
    assert (asked.steps, asked.top_k, asked.draft_tokens) == counts
    assert "speculative" in {reason.field for reason in found.reasons}


@pytest.mark.parametrize(
    ("architecture", "algorithm"),
    [
        ("LlamaForCausalLMEagle", "EAGLE"),
        ("LlamaForCausalLMEagle3", "EAGLE3"),
        ("Eagle3DeepseekV2ForCausalLM", "EAGLE3"),
        ("DeepseekV3ForCausalLMNextN", "NEXTN"),
        ("LlamaForCausalLM", "STANDALONE"),
    ],
)
def test_a_draft_alone_implies_its_algorithm(architecture: str, algorithm: str) -> None:
    wanted = Configuration(engine="sglang", model=LLAMA)
    found = implied(wanted, zoo_model(LLAMA), head(architecture), "org/draft")
    assert (found.algorithm, found.draft_model) == (algorithm, "org/draft")


def test_a_draft_alone_that_does_not_fit_is_refused() -> None:
    model = zoo_model(LLAMA)
    with pytest.raises(BadInput, match="tokens in its vocabulary"):
        implied(Configuration(engine="sglang", model=LLAMA), model, zoo_model("Qwen/Qwen3-0.6B"), "q")
    with pytest.raises(BadInput, match="the model itself is no draft"):
        implied(Configuration(engine="sglang", model=LLAMA), model, model, "m")
    with pytest.raises(BadInput, match="num_speculative_tokens"):
        implied(Configuration(engine="vllm", model=LLAMA), model, head(), "d")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(("name", "said"), [(LLAMA, False), (DEEPSEEK, True), ("Qwen/Qwen3-8B", True)])
def test_a_draft_of_another_vocabulary_is_pointed_out(engine: EngineName, name: str, said: bool) -> None:
    algorithm = {"sglang": "EAGLE3", "vllm": "eagle3"}[engine]
    found = planned(engine, name, head(), algorithm=algorithm, draft_tokens=4)
    assert any("see that the draft was made for this model" in note for note in found.notes) is said
