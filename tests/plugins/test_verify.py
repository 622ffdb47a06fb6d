"""What stands in for SGLang's functions: serves what fits, leaves the rest to the engine, and says so once."""

import logging
from typing import Any

import pytest
import torch

from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.problems import Shape, random_problem, relative_error
from draftmark.kernels.mla_verify.specification import specification
from draftmark.plugins.verify import Verifier

OPTIONS: dict[str, Any] = {
    "logit_cap": 0.0,
    "sliding_window_size": -1,
    "sinks": None,
    "window_kv_offsets": None,
    "xai_temperature_len": -1,
}
PROBLEM = random_problem(
    Shape(lengths=(40, 0), nodes=(5, 3), heads=2, mask="full", dtype=torch.float16, wide=False), seed=4
)


class Engine:
    """The engine's own kernel: the specification, and a count of its calls."""

    def __init__(self, problem: Problem = PROBLEM, spoil: float = 0.0) -> None:
        self.calls: list[dict[str, Any]] = []
        self._problem, self._spoil = problem, spoil

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self.calls.append(options)
        arguments[3].copy_(specification(self._problem).to(torch.float16) * (1 + self._spoil))


def call(problem: Problem = PROBLEM, **changes: Any) -> list[Any]:
    """Arguments as SGLang passes them, in its order."""
    cache, keys = problem.cache[:, None], problem.draft_keys[:, None]
    given: dict[str, Any] = {
        "q": problem.query,
        "k": keys,
        "v": keys[..., :512].contiguous(),
        "o": torch.zeros(*problem.query.shape[:2], 512, dtype=torch.float16),
        "k_buffer": cache,
        "v_buffer": cache[..., :512],
        "qo_indptr": problem.query_indptr,
        "kv_indptr": problem.cache_indptr,
        "kv_indices": problem.cache_indices,
        "custom_mask": problem.full_mask,
        "causal": True,
        "mask_indptr": problem.mask_indptr,
        "max_len": problem.max_nodes,
        "k_scale": 1.0,
        "v_scale": 1.0,
        "scale": problem.scale,
    }
    return list((given | changes).values())


def verifier(engine: Engine, *, shadow: bool = False) -> Verifier:
    return Verifier(engine=engine, shadow=shadow, logger=logging.getLogger("draftmark.sglang"))


def test_verify_writes_what_the_specification_says() -> None:
    engine, arguments = Engine(), call()
    assert verifier(engine).verify(*arguments, **OPTIONS, max_bs=7) is True
    assert relative_error(arguments[3][:8], specification(PROBLEM)[:8]) < 2e-3
    assert not engine.calls


def test_a_short_extend_is_served_and_causal_without_a_mask() -> None:
    shape = Shape(lengths=(40, 0), nodes=(5, 3), heads=2, mask="causal", dtype=torch.float16)
    problem = random_problem(shape, seed=4)
    engine, arguments = Engine(problem), call(problem)
    verifier(engine).extend(*arguments, **OPTIONS, page_size=1)
    assert relative_error(arguments[3][:8], specification(problem)[:8]) < 2e-3
    assert not engine.calls


@pytest.mark.parametrize(
    "changes",
    [{"max_len": 66}, {"q": torch.zeros(4, 2, 192), "v": torch.zeros(4, 1, 128)}],
    ids=["long", "other width"],
)
def test_other_extends_are_the_engines_and_nothing_is_said(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    verifier(engine).extend(*call(**changes), **OPTIONS, page_size=1)
    assert len(engine.calls) == 1
    assert engine.calls[0]["page_size"] == 1
    assert not caplog.records


def test_an_extend_called_in_another_way_is_the_engines() -> None:
    taken: list[int] = []
    ours = Verifier(engine=lambda *given, **_: taken.append(len(given)), shadow=False, logger=logging.getLogger("x"))
    ours.extend(*call()[:12], max_len_extend=5)
    assert taken == [12]


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"sinks": torch.zeros(2)}, "sinks is a tensor"),
        ({}, {"sliding_window_size": torch.zeros(2)}, "sliding_window_size is a tensor"),
        ({}, {"sliding_window_size": 128}, "sliding_window_size=128"),
        ({}, {"something_new": 3}, "something_new=3"),
        ({"causal": False}, {}, "not causal"),
        ({"v_buffer": torch.zeros(1, 1, 512)}, {}, "do not lie in the latent cache"),
        ({"k": torch.zeros(10, 4, 576)}, {}, "4 key heads"),
        ({"max_len": 70}, {}, "max_nodes is 70; it must be 1 to 65"),
        ({"q": torch.zeros(10, 2, 192)}, {}, "width 192 with values of 512, not 576 with 512"),
        ({"o": torch.zeros(10, 2, 512)}, {}, "out is torch.float32; it must be torch.float16"),
        ({"o": torch.zeros(10, 2, 1024)[..., ::2]}, {}, "an output that is not contiguous"),
        ({"custom_mask": PROBLEM.full_mask, "mask_indptr": None}, {}, "mask_indptr is None"),
        ({"k_scale": None}, {}, "TypeError"),
        ({"q": None}, {}, "AttributeError"),
        ({"kv_indptr": PROBLEM.cache_indptr[:-1]}, {}, "cache_indptr is"),
        ({"k_buffer": PROBLEM.cache[:, None].double()}, {}, "do not lie in the latent cache"),
        ({"kv_indices": torch.zeros(40)}, {}, "cache_indices is torch.float32; it must be"),
    ],
)
def test_what_does_not_fit_is_left_to_the_engine_and_said_once(
    changes: dict[str, Any], options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours = verifier(Engine())
    for _ in range(3):
        assert ours.verify(*call(**changes), **(OPTIONS | options), max_bs=7) is False
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert said in messages[0]


@pytest.mark.parametrize(
    "failure", [KeyError("odd"), AssertionError(), torch.OutOfMemoryError("tried 2 GiB"), OSError()]
)
def test_no_failure_of_the_kernel_reaches_the_server(
    failure: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("draftmark.plugins.verify.mla_verify", fail)
    engine = Engine()
    ours = verifier(engine)
    assert ours.verify(*call(), **OPTIONS, max_bs=7) is False
    ours.extend(*call(), **OPTIONS, page_size=1)
    assert len(engine.calls) == 1
    [record] = caplog.records
    assert type(failure).__name__ in record.getMessage()


def test_one_reason_with_other_sizes_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter(range(3))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"CUDA out of memory. Tried to allocate {next(sizes)} MiB")

    monkeypatch.setattr("draftmark.plugins.verify.mla_verify", fail)
    ours = verifier(Engine())
    for _ in range(3):
        assert ours.verify(*call(), **OPTIONS, max_bs=7) is False
    assert [record.getMessage()[-6:] for record in caplog.records] == [" 0 MiB"]


@pytest.mark.parametrize(("spoil", "over"), [(0.0, 0), (0.1, 16)])
def test_shadow_compares_every_node_and_head_and_leaves_the_engines_output(
    spoil: float, over: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmark.plugins.shadow.EVERY", 0.0)
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    engine, arguments = Engine(spoil=spoil), call()
    ours = verifier(engine, shadow=True)
    assert ours.verify(*arguments, **OPTIONS, max_bs=7) is True
    assert engine.calls == [OPTIONS]
    assert torch.equal(arguments[3], specification(PROBLEM).to(torch.float16) * (1 + spoil))
    with caplog.at_level(logging.INFO):
        ours.extend(*call(max_len=100), **OPTIONS)
    message = caplog.records[-1].getMessage()
    assert f"rows 16, rows over tolerance {over}, calls 1, calls with a batch 1, calls with ragged lengths 1" in message
    assert "longest 40" in message
