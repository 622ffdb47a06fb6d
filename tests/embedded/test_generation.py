"""Choosing tokens, and text that is safe to send."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from draftmark.embedded import tiny
from draftmark.embedded.generation import Sampler, TextStream

LOGITS = torch.tensor([0.0, 3.0, 2.0, 2.5, -1.0])


def draw(sampler: Sampler, count: int = 200) -> list[int]:
    return [sampler.choose(LOGITS) for _ in range(count)]


def test_temperature_zero_takes_the_likeliest() -> None:
    assert set(draw(Sampler(temperature=0, top_k=3, seed=1))) == {1}


def test_a_seed_repeats_and_another_differs() -> None:
    assert draw(Sampler(seed=1)) == draw(Sampler(seed=1))
    assert draw(Sampler(seed=1)) != draw(Sampler(seed=2))
    assert draw(Sampler()) != draw(Sampler())


def test_top_k_and_top_p_leave_the_likeliest() -> None:
    assert set(draw(Sampler(top_k=2, seed=1))) == {1, 3}
    assert set(draw(Sampler(top_p=0.01, seed=1))) == {1}
    probabilities = LOGITS.softmax(-1)
    assert set(draw(Sampler(top_p=float(probabilities[1]) + 0.01, seed=1))) == {1, 3}
    assert set(draw(Sampler(temperature=2, seed=1), 2000)) == {0, 1, 2, 3, 4}


def test_frequencies_follow_the_temperature() -> None:
    drawn = torch.tensor(draw(Sampler(temperature=0.5, seed=3), 20_000))
    assert torch.allclose(drawn.bincount(minlength=5) / len(drawn), (LOGITS / 0.5).softmax(-1), atol=0.02)


def byte_tokenizer() -> Any:
    """A token for every byte, so that characters are split over tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


BYTES = byte_tokenizer()


def stream(text: str, stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    subject, parts = TextStream(BYTES, stop), list[str]()
    tokens = BYTES(text).input_ids
    for number, token in enumerate(tokens, start=1):
        parts.append(subject.feed(token, last=number == len(tokens)))
        if subject.stopped:
            break
    return parts, subject.stopped


@settings(deadline=None)
@given(st.text(min_size=1, max_size=30))
def test_parts_make_the_text_and_no_character_is_cut(text: str) -> None:
    parts, _ = stream(text)
    assert "".join(parts) == text
    assert "�" not in "".join(parts) or "�" in text


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    subject = TextStream(BYTES)
    first, second = BYTES("é").input_ids
    assert subject.feed(first, last=False) == ""
    assert TextStream(BYTES).feed(first, last=True) == "�"
    assert subject.feed(second, last=False) == "é"


@settings(deadline=None)
@given(st.text("ab", min_size=1, max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_nothing_of_a_stop_string_is_sent(text: str, stops: list[str]) -> None:
    parts, stopped = stream(text, tuple(stops))
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert stopped == bool(ends)
    sent = "".join(parts)
    assert text.startswith(sent)
    if stopped:
        found = text[: min(ends)]
        assert sent == found[: min(found.find(stop) for stop in stops if stop in found)]
    else:
        assert sent == text


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def test_tiny_vocabulary_is_whole_text(tokenizer: Any) -> None:
    assert len(tokenizer) == tiny.VOCABULARY
    pieces = [tokenizer.decode([token]) for token in range(tiny.VOCABULARY)]
    assert all(piece and piece.isascii() for piece in pieces)
    assert len(set(pieces)) == tiny.VOCABULARY


@given(st.lists(st.integers(len(tiny.SPECIAL) + len(tiny.CHARACTERS), tiny.VOCABULARY - 1), min_size=1, max_size=50))
@settings(deadline=None)
def test_tiny_words_come_back_as_the_same_tokens(tokens: list[int]) -> None:
    tokenizer = tiny.tokenizer()
    assert tokenizer(tokenizer.decode(tokens)).input_ids == [1, *tokens]
