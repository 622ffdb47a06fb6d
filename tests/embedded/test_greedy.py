"""Greedy output is that of transformers' generate, token for token, whatever the chunk and the company."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.embedded.in_process import SHAPES, WINDOW, greedy, serving

requests = st.lists(
    st.tuples(st.integers(min_value=1, max_value=60), st.integers(min_value=1, max_value=8), st.integers(0, 2**31)),
    min_size=1,
    max_size=4,
)


def prompt_of(length: int, seed: int, vocabulary: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(token) for token in torch.randint(10, vocabulary, (length,), generator=generator)]


def generate(model: Any, prompt: list[int], limit: int) -> list[int]:
    batch = torch.tensor([prompt])
    made = model.generate(
        batch,
        attention_mask=torch.ones_like(batch),
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return [int(token) for token in made[0, len(prompt) :]]


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=requests, chunk=st.sampled_from([1, 7, 32, 512]), max_running=st.integers(1, 4))
def test_same_as_generate(
    lively: dict[str, Any], shape: str, asked: list[tuple[int, int, int]], chunk: int, max_running: int
) -> None:
    model = lively[shape]
    prompts = [(prompt_of(length, seed, model.config.vocab_size), limit) for length, limit, seed in asked]
    sent = [greedy(prompt, limit) for prompt, limit in prompts]
    with serving(model, tokens=400, chunk=chunk, max_running=max_running) as engine:
        engine.submit(*sent)
        made = [engine.tokens(request) for request in sent]
    assert made == [generate(model, prompt, limit) for prompt, limit in prompts]


@pytest.mark.parametrize("shape", SHAPES)
def test_output_varies_enough_to_tell(lively: dict[str, Any], shape: str) -> None:
    model = lively[shape]
    made = generate(model, prompt_of(100, 1, model.config.vocab_size), 40)
    assert len(set(made)) > 20


def test_the_window_is_passed_and_matters(lively: dict[str, Any]) -> None:
    model = lively["windowed"]
    prompt = prompt_of(4 * WINDOW * model.config.num_hidden_layers, 5, model.config.vocab_size)
    changed = [prompt[0] + 1, *prompt[1:]]
    request = greedy(changed, 12)
    with serving(model, tokens=400, chunk=10) as engine:
        engine.submit(request)
        assert engine.tokens(request) == generate(model, prompt, 12)
