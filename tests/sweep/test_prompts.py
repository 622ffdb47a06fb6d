import random

import pytest

from draftmark.selftest.model import BOS, words
from draftmark.sweep.corpus import Corpus
from draftmark.sweep.prompts import Prompt, PromptMaker


class Words:
    """Counts as the ground-truth server does, and remembers how much it had to count."""

    name = "words"
    cheap = False

    def __init__(self) -> None:
        self.longest = 0

    def encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        self.longest = max(self.longest, len(text))
        return ((BOS,) if special else ()) + words(text)

    def count(self, text: str, *, special: bool) -> int:
        return len(self.encode(text, special=special))


def uneven(lines: int) -> Corpus:
    """Text whose tokens a character change from part to part."""
    order = random.Random(2)
    parts = []
    for index in range(lines):
        size = 2 if index // 200 % 2 else 7
        parts.append(" ".join("".join(order.choices("abcdefgh", k=size)) for _ in range(8)) + "\n")
    return Corpus(text="".join(parts), content="uneven")


def maker(counter: Words, *, send_ids: bool = False, overhead: int | None = None) -> PromptMaker:
    return PromptMaker(uneven(4000), counter, send_ids=send_ids, overhead=overhead, seed=4)


def tokens(prompt: Prompt) -> int:
    return len(prompt.ids) if prompt.ids is not None else 1 + len(words(prompt.text))


@pytest.mark.parametrize("asked", [16, 500, 20_000])
@pytest.mark.parametrize("difference", [0.5, 0.97, 1.0, 1.03, 1.4])
def test_one_correction_is_enough_however_far_the_guess_was(asked: int, difference: float) -> None:
    counter = Words()
    made = maker(counter)
    made.make(asked)
    length = int(asked * 4.2 * difference)
    start = made.corpus.text.index("\n", 5000) + 1
    guess = Prompt(
        ids=None,
        text="[0123456789]\n" + made.corpus.window(start, length),
        start=start,
        characters=length,
        serial="[0123456789]\n",
    )
    counted = tokens(guess)
    if asked - counted + len(words(guess.text)) < 8:
        return
    fixed = made.correct(guess, asked=asked, counted=counted, fresh=True)
    assert tokens(fixed) == asked
    assert fixed.serial != guess.serial
    assert fixed.text.startswith(fixed.serial)


def test_small_corrections_count_little() -> None:
    counter = Words()
    made = maker(counter)
    prompt = made.make(20_000)
    counter.longest = 0
    made.correct(prompt, asked=tokens(prompt) - 5, counted=tokens(prompt), fresh=True)
    assert counter.longest < 3000


def test_ids_are_cut_to_length_behind_the_beginning_of_sequence() -> None:
    made = maker(Words(), send_ids=True)
    first, second = made.make(1000), made.make(1000)
    assert first.ids is not None
    assert second.ids is not None
    assert len(first.ids) == len(second.ids) == 1000
    assert first.ids[0] == second.ids[0] == BOS
    assert first.ids[:16] != second.ids[:16]


def test_shorter_versions_are_beginnings_of_the_document() -> None:
    made = maker(Words(), send_ids=True)
    document = made.make(5000)
    assert document.ids is not None
    assert made.shorten(document, 700).ids == document.ids[:700]


def test_a_window_goes_around_the_end_and_never_repeats() -> None:
    corpus = Corpus(text="abcdef", content="letters")
    assert corpus.window(4, 4) == "efab"
    assert corpus.window(10, 6) == "efabcd"
    with pytest.raises(AssertionError, match="repeat"):
        corpus.window(0, 7)
