"""As much text as the deepest prompt needs, whatever the tokenizer makes of it."""

import math
from pathlib import Path

import httpx
import pytest

from draftmark.errors import BadInput
from draftmark.selftest.model import Setup
from draftmark.selftest.process import GroundTruth
from draftmark.sweep import Options, sweep
from draftmark.sweep.corpus import Corpus
from draftmark.sweep.prompts import Prompt, PromptMaker
from draftmark.sweep.text import USUAL, characters_a_token, text_for
from draftmark.units import Tokens

from .conftest import FAST


class Every:
    """Counts a token for every so many characters; None: it cannot count."""

    name = "every"
    cheap = True

    def __init__(self, characters: float | None) -> None:
        self._characters = characters

    def encode(self, text: str, *, special: bool) -> None:
        return

    def count(self, text: str, *, special: bool) -> int:
        if self._characters is None:
            raise httpx.RemoteProtocolError("the server reports no usage")
        return math.ceil(len(text) / self._characters)


@pytest.mark.parametrize("characters", [0.5, 1.3, 4.0, 11.0])
@pytest.mark.parametrize("depth", [100, 20_000])
def test_there_is_text_for_the_deepest_prompt(characters: float, depth: int) -> None:
    corpus, density = text_for(Options(), depth, Every(characters), seed=1)
    assert density == pytest.approx(characters, rel=0.05)
    assert len(corpus.text) >= depth * characters


@pytest.mark.parametrize(("characters", "fits"), [(1.0, True), (3.9, True), (4.1, False), (50.0, False)])
def test_a_file_is_too_short_by_its_tokens_and_not_by_its_characters(
    tmp_path: Path, characters: float, fits: bool
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("abcdefg\n" * 500)
    options = Options(texts=(file,))
    if fits:
        assert text_for(options, 1000, Every(characters), seed=1)[0].content == "mine.txt"
        return
    with pytest.raises(BadInput, match="4,000 characters are too short for 1,000 tokens"):
        text_for(options, 1000, Every(characters), seed=1)


def test_a_long_file_is_not_tokenized_whole(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("abcdefg\n" * 100_000)
    corpus, _ = text_for(Options(texts=(file,)), 1000, Every(4.0), seed=1)
    assert len(corpus.text) == 8000


def test_what_cannot_be_counted_is_taken_to_be_usual(tmp_path: Path) -> None:
    assert characters_a_token("some text", Every(None)) is None
    file = tmp_path / "mine.txt"
    file.write_text("x" * (100 * USUAL - 1))
    with pytest.raises(BadInput, match="about 500 are needed"):
        text_for(Options(texts=(file,)), 100, Every(None), seed=1)


@pytest.mark.parametrize("text", ["\n" * 600, "abc def\n" * 20, "x" * 400, "word " * 100])
@pytest.mark.parametrize("counted", [1, 7, 99])
def test_a_text_that_does_not_last_is_sent_whole_and_never_twice(text: str, counted: int) -> None:
    made = PromptMaker(Corpus(text=text, content="t"), Every(40.0), send_ids=False, overhead=None, seed=3)
    first = made.make(100)
    assert isinstance(first, Prompt)
    again = made.correct(first, asked=100, counted=counted, fresh=True)
    assert again.characters <= len(text)
    assert again.text.startswith(again.serial)


@pytest.mark.parametrize("tokenize", [True, False])
@pytest.mark.parametrize("content", ["the tide " * 900, "\u6f6e\u6c50" * 900, "a\r\n" * 2000, "abc" * 2000])
def test_odd_texts_make_exact_prompts(server: GroundTruth, tmp_path: Path, content: str, tokenize: bool) -> None:
    server.control(Setup(pace=FAST, tokenize=tokenize))
    result = sweep(server.url, (100, 400), _of(tmp_path, content), sink=lambda point: None)
    assert [point.invalid for point in result.points] == [None, None]


def test_white_space_is_no_text(server: GroundTruth, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"odd\.txt: 20,000 characters are too short for 400 tokens"):
        sweep(server.url, (100, 400), _of(tmp_path, " \n" * 10_000), sink=lambda point: None)
    server.control(Setup(pace=FAST, tokenize=False))
    result = sweep(server.url, (100,), _of(tmp_path, " \n" * 10_000), sink=lambda point: None)
    assert "asked for 100 tokens, the server counted" in str(result.points[0].invalid)


def _of(folder: Path, content: str) -> Options:
    file = folder / "odd.txt"
    file.write_bytes(content.encode())
    return Options(warm_up=0, repeats=1, most_repeats=1, output=Tokens(4), texts=(file,), seed=1)
