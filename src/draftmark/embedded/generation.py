"""From logits to a token, and from tokens to text that is safe to send."""

from collections.abc import Sequence
from typing import Final

import msgspec
import torch
from transformers import PreTrainedTokenizerBase

REPLACEMENT: Final = "�"
"""What a tokenizer decodes an unfinished UTF-8 sequence to."""


class Piece(msgspec.Struct):
    """What one token gave, or several: text that may be sent, and why the output ended, where it did."""

    tokens: list[int]
    text: str
    finish: str | None


class Sampler:
    """Chooses the tokens of one request. Temperature 0 takes the likeliest; `top_k` 0 and `top_p` 1 keep all."""

    def __init__(
        self, *, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, seed: int | None = None
    ) -> None:
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self._generator = torch.Generator()
        self._generator.seed() if seed is None else self._generator.manual_seed(seed)

    def choose(self, logits: torch.Tensor) -> int:
        """The next token, from logits of shape [vocabulary]. Drawn on the CPU: a seed means the same everywhere."""
        if self._temperature == 0:
            return int(logits.argmax())
        scaled = logits.float().cpu() / self._temperature
        if 0 < self._top_k < scaled.numel():
            scaled[scaled < scaled.topk(self._top_k).values[-1]] = -torch.inf
        probabilities = scaled.softmax(-1)
        if self._top_p < 1:
            ordered, order = probabilities.sort(descending=True)
            probabilities[order[ordered.cumsum(-1) - ordered > self._top_p]] = 0
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


class TextStream:
    """Text of one request as it grows. Unfinished characters, and what may become a stop string, are held back."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str] = ()) -> None:
        self.stopped = False
        self._tokenizer, self._stops = tokenizer, stops
        self._tokens: list[int] = []
        self._read = 0
        """How many of the tokens have given their text; they are kept for the context that they give the next."""
        self._held = ""

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def feed(self, token: int, *, last: bool) -> str:
        """Text that may be sent after one more token; with `last`, all that is left. A stop string sets `stopped`."""
        self._tokens.append(token)
        known, grown = self._decode(self._tokens[: self._read]), self._decode(self._tokens)
        if last or (len(grown) > len(known) and not grown.endswith(REPLACEMENT)):
            self._held += grown[len(known) :]
            self._tokens = self._tokens[self._read :]
            self._read = len(self._tokens)
        safe = self._safe(last=last)
        text, self._held = self._held[:safe], self._held[safe:]
        return text

    def _safe(self, *, last: bool) -> int:
        """How much of the held text may go: up to a stop string, or to an end that may become one."""
        found = [place for text in self._stops if (place := self._held.find(text)) >= 0]
        self.stopped = bool(found)
        if found:
            return min(found)
        size = len(self._held)
        begun = [place for place in range(size) if any(text.startswith(self._held[place:]) for text in self._stops)]
        return begun[0] if begun and not last else size
