"""Prompts of exactly as many tokens as asked, each with a beginning of its own.

With token ids a prompt is cut to length. With text the length in characters is found against a counter; where the
server's count still differs, its tail is recut once by the difference, counting short texts only.
"""

import random
from typing import Final

import msgspec

from draftmark.sweep.corpus import Corpus
from draftmark.sweep.tokens import Counter

LEAST_TOKENS: Final = 16
"""Room for the unique beginning and some text."""
FIRST_GUESS: Final = 3.0
"""Characters a token before anything was counted."""
CAUTION: Final = 0.9
"""Of the characters that a sample of the text promises, so much is sent first: less than the depth, not more."""
ANCHOR: Final = 400
"""Characters before the cut that are counted again with the tail, so that no token is cut at the seam."""
AROUND: Final = 60
"""Characters to either side of a cut that are tried one by one: longer than a word."""
CANDIDATES: Final = 12
"""Beginnings that are tried for one that counts like another."""
STARTS: Final = 3
ROUNDS: Final = 4


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: ids, or text. `start` and `characters` say where in the corpus the text was cut."""

    ids: tuple[int, ...] | None
    text: str
    start: int = 0
    characters: int = 0
    serial: str = ""


class PromptMaker:
    """Makes prompts over one corpus; `overhead` are tokens that the server adds around a chat's text, `density` the
    corpus's characters a token where some of it was counted."""

    def __init__(
        self,
        corpus: Corpus,
        counter: Counter,
        *,
        send_ids: bool,
        overhead: int | None,
        seed: int,
        density: float | None = None,
    ) -> None:
        self.corpus, self._counter, self._overhead = corpus, counter, overhead
        self._random = random.Random(seed)
        self._ratio = FIRST_GUESS if density is None else density * CAUTION
        self._ids: tuple[int, ...] | None = None
        self._special: tuple[int, ...] = ()
        if send_ids:
            self._ids = counter.encode(corpus.text, special=False)
            self._special = self._leading_special()

    @property
    def sends_ids(self) -> bool:
        """Prompts are token ids."""
        return self._ids is not None

    def make(self, asked: int) -> Prompt:
        """A prompt that should count `asked` tokens, at a place of the corpus drawn by the seed."""
        serial = self._serial()
        return self._of_ids(asked, serial) if self._ids is not None else self._of_text(asked, serial)

    def text(self, about: int) -> str:
        """Text of about so many tokens, at a place of the corpus drawn by the seed, under a beginning of its own."""
        start = self._random.randrange(len(self.corpus.text))
        ratio = self._ratio if self._ids is None else len(self.corpus.text) / len(self._ids)
        return self._serial() + self.corpus.window(start, min(int(about * ratio), len(self.corpus.text)))

    def shorten(self, document: Prompt, asked: int) -> Prompt:
        """The beginning of a document, `asked` tokens long."""
        if document.ids is not None:
            return msgspec.structs.replace(document, ids=document.ids[:asked])
        prompt, _ = self._fit(document.start, document.serial, asked)
        return prompt

    def correct(self, prompt: Prompt, *, asked: int, counted: int, fresh: bool) -> Prompt:
        """A text that the server counted, with its end recut to `asked`, under a `fresh` beginning or its own."""
        assert prompt.ids is None, "ids are as many as they are: a server that counts others is not to be corrected"
        self._ratio = len(prompt.text) / max(counted, 1)
        serial, more = self._alike(prompt) if fresh else (prompt.serial, 0)
        characters = self._recut(prompt.start, prompt.characters, asked - counted - more)
        return self._text(prompt.start, characters, serial)

    def _alike(self, prompt: Prompt) -> tuple[str, int]:
        """A fresh beginning that counts like the prompt's own, after a line's end and after a space; else by how much
        the first one tried counts more.

        It is never counted at the beginning of a text, lest that put the new prompt into the server's prefix cache.
        """
        head = self.corpus.window(prompt.start, min(ANCHOR, prompt.characters))

        def counts(serial: str) -> list[int]:
            return [self._counter.count(before + serial + head, special=False) for before in ("-\n", "x ")]

        wanted = counts(prompt.serial)
        tried = []
        for _ in range(CANDIDATES):
            serial = self._serial()
            counted = counts(serial)
            if counted == wanted:
                return serial, 0
            tried.append((serial, counted[0] - wanted[0]))
        return tried[0]

    def _serial(self) -> str:
        return f"[{self._random.getrandbits(40):010x}]\n"

    def _leading_special(self) -> tuple[int, ...]:
        """Ids that the server's tokenizer puts before a text (BOS)."""
        bare = self._counter.encode("a", special=False) or ()
        full = self._counter.encode("a", special=True) or ()
        return full[: max(full.index(bare[0]), 0)] if bare and bare[0] in full else ()

    def _of_ids(self, asked: int, serial: str) -> Prompt:
        assert self._ids is not None
        head = self._special + (self._counter.encode(serial, special=False) or ())
        head = head[:asked]
        start = self._random.randrange(len(self._ids))
        body = (self._ids[start:] + self._ids[:start])[: asked - len(head)]
        return Prompt(ids=head + body, text="", start=start, serial=serial)

    def _of_text(self, asked: int, serial: str) -> Prompt:
        """From a line's start; where no cut there counts right, from another."""
        for _ in range(STARTS):
            start = self.corpus.text.find("\n", self._random.randrange(len(self.corpus.text))) + 1
            prompt, right = self._fit(start, serial, asked)
            if right:
                break
        return prompt

    def _fit(self, start: int, serial: str, asked: int) -> tuple[Prompt, bool]:
        """Cut by the characters a token seen so far, then recut until the counter says `asked`; and whether it did.

        Where counting costs a prefill the first cut stands, and is left to the server's count to judge.
        """
        target = asked - (self._overhead or 0)
        room = len(self.corpus.text)
        characters = min(int(target * self._ratio), room)
        for _ in range(ROUNDS):
            prompt = self._text(start, characters, serial)
            if not self._counter.cheap:
                return prompt, True
            counted = self._counter.count(prompt.text, special=self._overhead is None)
            if counted == target:
                return prompt, True
            self._ratio = len(prompt.text) / max(counted, 1)
            characters = min(max(self._recut(start, characters, target - counted), 1), room)
        return self._text(start, characters, serial), False

    def _text(self, start: int, characters: int, serial: str) -> Prompt:
        text = serial + self.corpus.window(start, characters)
        return Prompt(ids=None, text=text, start=start, characters=characters, serial=serial)

    def _recut(self, start: int, characters: int, difference: int) -> int:
        """Characters from `start` with `difference` tokens more, counting nothing but the neighbourhood of the cut.

        What is counted begins at a line, as far before both cuts as the difference needs. A cut within a word may
        count more than one after it, so that halving can pass by the right one; the places around are then tried one
        by one. Where none is right the nearest is taken, and the caller's own count tells.
        """
        guess = characters + round(difference * self._ratio)
        limit = len(self.corpus.text)
        anchor, wanted, back = 0, 0, ANCHOR
        while wanted < 1:
            anchor = self._line_start(start, min(characters, guess) - back)
            wanted = self._tail(start, anchor, characters) + difference
            if anchor == 0:
                break
            back *= 4
        low, high = anchor, min(max(characters, guess) + ANCHOR, limit)
        while self._tail(start, anchor, high) < wanted and high < limit:
            high = min(high + 8 * ANCHOR, limit)
        middle = min(max(guess, low), high)
        while low < high:
            counted = self._tail(start, anchor, middle)
            if counted == wanted:
                return middle
            low, high = (middle + 1, high) if counted < wanted else (low, middle)
            middle = (low + high) // 2
        around = range(max(low - AROUND, anchor + 1), min(low + AROUND, limit))
        return next((end for end in around if self._tail(start, anchor, end) == wanted), min(low, limit))

    def _tail(self, start: int, anchor: int, end: int) -> int:
        """Tokens of the corpus from `anchor` to `end`, both counted in characters from `start`."""
        return self._counter.count(self.corpus.window(start + anchor, end - anchor), special=False)

    def _line_start(self, start: int, before: int) -> int:
        """The last start of a line at or before so many characters from `start`; 0 where there is none."""
        return self.corpus.window(start, max(before, 0)).rfind("\n") + 1
