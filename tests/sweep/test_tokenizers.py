"""Tokens are exact whatever the tokenizer: four kinds, both APIs, ids and text, with and without /tokenize."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from draftmark.sample import Point
from draftmark.selftest.model import Setup
from draftmark.selftest.process import ground_truth
from draftmark.selftest.schedule import Pace
from draftmark.sweep import Options, sweep
from draftmark.sweep.corpus import python_corpus
from draftmark.units import Tokens

FAST = Pace(first=0.001, step=0.0)
DEPTHS = (1000, 4321, 12_000)
UNKNOWN = "<unk>"


def byte_level() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)


def sentencepiece_bpe() -> tuple[Tokenizer, trainers.Trainer]:
    """As in Llama 2: spaces become part of words, one before the text as well."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.BpeTrainer(vocab_size=3000, special_tokens=[UNKNOWN], show_progress=False)


def unigram() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=2000, unk_token=UNKNOWN, special_tokens=[UNKNOWN], show_progress=False)
    return tokenizer, trainer


def word_piece() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=[UNKNOWN], show_progress=False)


def trained(make: Callable[[], tuple[Tokenizer, trainers.Trainer]], folder: Path) -> str:
    tokenizer, trainer = make()
    text = python_corpus("code", characters=200_000, seed=3).text
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file)


@pytest.mark.parametrize("make", [byte_level, sentencepiece_bpe, unigram, word_piece])
def test_tokens_are_exact(make: Callable[[], tuple[Tokenizer, trainers.Trainer]], tmp_path: Path) -> None:
    file = trained(make, tmp_path)
    cases: tuple[tuple[Literal["completions", "chat"], bool, bool], ...] = (
        ("completions", True, True),
        ("completions", False, True),
        ("chat", False, True),
        ("completions", False, False),
    )
    points: list[Point] = []
    with ground_truth(Setup(), tokenizer=file) as server:
        for api, token_ids, tokenize in cases:
            server.control(Setup(pace=FAST, token_ids=token_ids, tokenize=tokenize))
            options = Options(warm_up=0, repeats=3, most_repeats=3, output=Tokens(2), api=api, seed=5)
            result = sweep(server.url, DEPTHS, options, sink=lambda point: None)
            truth = {request.seed: request.prompt_tokens for request in server.truth()}
            for point in result.points:
                if point.invalid is None:
                    assert {truth[sample.seed] for sample in point.measured} == {point.asked}
            points += result.points
    assert [point.invalid for point in points] == [None] * len(cases) * len(DEPTHS)


def test_a_tokenizer_of_ours_does_where_the_server_has_no_tokenize(tmp_path: Path) -> None:
    file = trained(byte_level, tmp_path)
    with ground_truth(Setup(pace=FAST, tokenize=False), tokenizer=file) as server:
        options = Options(warm_up=0, repeats=1, most_repeats=1, output=Tokens(2), tokenizer=tmp_path)
        result = sweep(server.url, DEPTHS, options, sink=lambda point: None)
        assert result.dialect.token_ids
        chat = sweep(server.url, DEPTHS, msgspec.structs.replace(options, api="chat"), sink=lambda point: None)
    assert [point.invalid for point in (*result.points, *chat.points)] == [None] * 6
