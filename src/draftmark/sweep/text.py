"""Enough text for the deepest prompt, by how many of its characters this server's tokenizer takes for a token."""

import math
from typing import Final

import httpx

from draftmark.errors import BadInput
from draftmark.sweep.corpus import Corpus, file_corpus, python_corpus
from draftmark.sweep.options import Options
from draftmark.sweep.tokens import Counter

USUAL: Final = 5
"""Characters a token where nothing was counted: more than code and prose take on average."""
SAMPLE: Final = 8_000
"""Characters that are counted to know a text: about 2,000 tokens, which cost a prefill where only usage counts."""
SPARE: Final = 1.25
"""Texts differ from stretch to stretch: so much more is taken than the sample says."""
VARIETY: Final = 2
"""A long file is cut to so many times the deepest prompt: its prompts begin at different places."""


def text_for(options: Options, deepest: int, counter: Counter, *, seed: int) -> tuple[Corpus, float | None]:
    """The text that prompts of up to `deepest` tokens are cut from, and its characters a token (None: not counted).

    Raises:
        BadInput: a file cannot be read, or there is not enough text.
    """
    usual = deepest * USUAL
    if options.texts:
        whole = file_corpus(options.texts)
        density = characters_a_token(whole.text, counter)
        _require(whole, deepest, density)
        most = max(usual, math.ceil(deepest * (density or USUAL) * VARIETY))
        return Corpus(text=whole.text[:most], content=whole.content), density
    corpus = python_corpus(options.content, characters=usual, seed=seed)
    density = characters_a_token(corpus.text, counter)
    needed = math.ceil(deepest * (density or USUAL) * SPARE)
    if needed > usual:
        corpus = python_corpus(options.content, characters=needed, seed=seed)
    return corpus, density


def characters_a_token(text: str, counter: Counter) -> float | None:
    """Of a stretch in the middle of a text; None where the counter does not tell."""
    start = max((len(text) - SAMPLE) // 2, 0)
    sample = text[start : start + SAMPLE]
    if not sample:
        return None
    try:
        counted = counter.count(sample, special=False)
    except httpx.HTTPError:
        return None
    return len(sample) / counted if counted > 0 else None


def _require(corpus: Corpus, deepest: int, density: float | None) -> None:
    needed = math.ceil(deepest * (density or USUAL))
    if len(corpus.text) >= needed:
        return
    raise BadInput(
        f"{len(corpus.text):,} characters are too short for {deepest:,} tokens, about {needed:,} are needed",
        place=corpus.content,
        remedy="name more files, or sweep to a smaller depth",
    )
