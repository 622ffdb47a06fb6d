"""Whatever is asked, the solver answers or refuses, and what it proposes holds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.configuration import Configuration, EngineName, Parallel, Speculative
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Target, laid_out, plan, solve
from draftmark.planner.candidate import SAFE, SURE
from draftmark.units import Tokens
from tests.zoo import rows, zoo_model

GPUS = ("h100", "b200", "rtx-pro-6000", "rtx-4090", "rtx-3090", "mi300x", "l40s")


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    engine: EngineName = draw(st.sampled_from(["sglang", "vllm"]))
    algorithm = "EAGLE" if engine == "sglang" else "mtp"
    shapes = st.builds(
        Speculative,
        algorithm=st.just(algorithm),
        steps=st.just(3),
        top_k=st.sampled_from([1, 4]),
        draft_tokens=st.sampled_from([4, 8]),
    )
    fields: dict[str, Any] = {
        "speculative": draw(st.none() | shapes),
        "memory_fraction": draw(st.none() | st.sampled_from([0.5, 0.8, 0.95])),
        "max_running": draw(st.none() | st.sampled_from([64, 512])),
        "environment": draw(st.sampled_from([(), (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)])),
        "pool_tokens": draw(st.none() | st.just(Tokens(200_000))) if engine == "sglang" else None,
    }
    return Configuration(engine=engine, model="m", **fields)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(sorted(rows())),
    gpu=st.sampled_from(GPUS),
    count=st.sampled_from([1, 2, 3, 4, 8]),
    asked=configurations(),
    length=st.sampled_from([2_000, 30_000, 100_000]),
    concurrency=st.sampled_from([1, 4, 64]),
    fixed=st.booleans(),
)
def test_what_is_proposed_holds(
    name: str, gpu: str, count: int, asked: Configuration, length: int, concurrency: int, *, fixed: bool
) -> None:
    machine = parse_machine(f"{gpu}:{count}")
    wanted = Target(context=Tokens(length), output=Tokens(500), concurrency=concurrency)
    kept = frozenset({"tensor"} if fixed else set())
    try:
        model = zoo_model(name)
        asked, _ = laid_out(model, asked, machine, kept)
        found = solve(model, asked, machine, wanted, fixed=kept)
    except BadInput:
        return
    assert (found.first is None) == (found.otherwise is not None)
    for one in found.shown:
        assert one.probability >= SURE
        assert one.plan.conflicts == ()
        assert one.asked.parallel.gpus <= count
        assert not fixed or one.asked.parallel.tensor == asked.parallel.tensor
    if found.first is not None:
        again = plan(model, found.first.asked, machine, target=wanted)
        assert again.reach == found.first.plan.reach
        assert again.worst_risk <= SAFE
        assert again.reach is not None
        assert again.reach.requests * again.pools >= concurrency


@pytest.mark.parametrize("speculative", [None, Speculative(algorithm="EAGLE", draft_model="draft")])
def test_a_stage_without_any_cache_leaves_the_pool_to_the_others(speculative: Speculative | None) -> None:
    """Eight stages of a hybrid: some hold recurrent and expert layers only, and nothing a token."""
    asked = Configuration(engine="sglang", model="m", parallel=Parallel(pipeline=8), speculative=speculative)
    model = zoo_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    draft = zoo_model("Qwen/Qwen3-0.6B") if speculative is not None else None
    found = plan(model, asked, parse_machine("h100:8"), draft=draft)
    assert 0 < found.pool.tokens < 2**35
