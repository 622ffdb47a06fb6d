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
ANCHOR: Final = 400
"""Characters before the cut that are counted again with the tail, so that no token is cut at the seam."""
ROUNDS: Final = 4


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: ids, or text. `start` and `characters` say where in the corpus the text was cut."""

    ids: tuple[int, ...] | None
    text: str
    start: int = 0
    characters: int = 0
    serial: str = ""


class PromptMaker:
    """Makes prompts over one corpus; `overhead` are tokens that the server adds around a chat's text."""

    def __init__(self, corpus: Corpus, counter: Counter, *, send_ids: bool, overhead: int | None, seed: int) -> None:
        self.corpus, self._counter, self._overhead = corpus, counter, overhead
        self._random = random.Random(seed)
        self._ratio = FIRST_GUESS
        self._ids: tuple[int, ...] | None = None
        self._special: tuple[int, ...] = ()
        if send_ids:
            self._ids = counter.encode(corpus.text, special=False)
            self._special = self._leading_special()

    @property
    def sends_ids(self) -> bool:
        """Prompts are token ids."""
        return self._ids is not None

    @property
    def longest(self) -> int | None:
        """Tokens of the corpus, where they are known."""
        return None if self._ids is None else len(self._ids)

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
        return self._fit(document.start, document.serial, asked)

    def correct(self, prompt: Prompt, *, asked: int, counted: int, fresh: bool) -> Prompt:
        """A text that the server counted, with its end recut to `asked`, under a `fresh` beginning or its own.

        The fresh beginning may count otherwise than the one it replaces; that is made up for at the end as well. It
        is counted behind a dash, lest the counting put the new prompt's beginning into the server's prefix cache.
        """
        assert prompt.ids is None, "ids are as many as they are: a server that counts others is not to be corrected"
        self._ratio = len(prompt.text) / max(counted, 1)
        serial = self._serial() if fresh else prompt.serial
        head = self.corpus.window(prompt.start, min(ANCHOR, prompt.characters))
        before, now = (self._counter.count(f"-\n{text}{head}", special=False) for text in (prompt.serial, serial))
        characters = self._recut(prompt.start, prompt.characters, asked - counted + before - now)
        return self._text(prompt.start, characters, serial)

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
        start = self._random.randrange(len(self.corpus.text))
        newline = self.corpus.text.find("\n", start) + 1
        return self._fit(newline, serial, asked)

    def _fit(self, start: int, serial: str, asked: int) -> Prompt:
        """Cut by the characters a token seen so far, then recut by what the counter says, until it says `asked`."""
        target = asked - (self._overhead or 0)
        room = len(self.corpus.text)
        characters = min(int(target * self._ratio), room)
        if not self._counter.cheap:
            return self._text(start, characters, serial)
        for _ in range(ROUNDS):
            prompt = self._text(start, characters, serial)
            counted = self._counter.count(prompt.text, special=self._overhead is None)
            if counted == target:
                return prompt
            self._ratio = len(prompt.text) / max(counted, 1)
            characters = min(max(self._recut(start, characters, target - counted), 1), room)
        return self._text(start, characters, serial)

    def _text(self, start: int, characters: int, serial: str) -> Prompt:
        text = serial + self.corpus.window(start, characters)
        return Prompt(ids=None, text=text, start=start, characters=characters, serial=serial)

    def _recut(self, start: int, characters: int, difference: int) -> int:
        """Characters from `start` with `difference` tokens more, counting nothing but the neighbourhood of the cut.

        Adding one character can change the count by more than one, so a neighbour that counts right may not exist;
        then the nearest below is taken and the caller's own count tells.
        """
        guess = characters + round(difference * self._ratio)
        anchor = max(min(characters, guess) - ANCHOR, 0)
        anchor = max(self.corpus.window(start, characters).rfind("\n", 0, anchor) + 1, 0)
        limit = len(self.corpus.text)

        def tail(end: int) -> int:
            return self._counter.count(self.corpus.window(start + anchor, end - anchor), special=False)

        wanted = tail(characters) + difference
        low, high = anchor, min(max(characters, guess) + ANCHOR, limit)
        while tail(high) < wanted and high < limit:
            high = min(high + 8 * ANCHOR, limit)
        while low < high:
            middle = min(max(guess, low), high - 1) if low == anchor else (low + high) // 2
            counted = tail(middle)
            if counted == wanted:
                return middle
            if counted < wanted:
                low = middle + 1
            else:
                high = middle
            guess = (low + high) // 2
        return low
