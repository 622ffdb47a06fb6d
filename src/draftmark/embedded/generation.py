"""From logits to a token, and from tokens to text that is safe to send."""

from typing import Final

import msgspec
import torch
from transformers import PreTrainedTokenizerBase

REPLACEMENT: Final = "�"
"""What a tokenizer decodes an unfinished UTF-8 sequence to."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. Temperature 0 takes the likeliest; `top_k` 0 and `top_p` 1 keep all."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    def generator(self) -> torch.Generator | None:
        """A source of randomness for one request; None where nothing is drawn."""
        if self.temperature == 0:
            return None
        generator = torch.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator


def choose(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator | None) -> int:
    """The next token, from logits of shape [vocabulary]. Drawn on the CPU, so that a seed means the same everywhere."""
    if generator is None:
        return int(logits.argmax())
    scaled = logits.float().cpu() / sampling.temperature
    if 0 < sampling.top_k < scaled.numel():
        scaled[scaled < scaled.topk(sampling.top_k).values[-1]] = -torch.inf
    probabilities = scaled.softmax(-1)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        probabilities[order[ordered.cumsum(-1) - ordered > sampling.top_p]] = 0
    return int(torch.multinomial(probabilities, 1, generator=generator))


class TextStream:
    """Text of one request as it grows. Unfinished characters, and what may become a stop string, are held back."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...] = ()) -> None:
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = stop
        self._tokens: list[int] = []
        self._settled = 0
        """Tokens before this one are decoded no more, but for the context that the last of them gives."""
        self._read = 0
        """Tokens before this one have given their text."""
        self._held = ""

    def _decode(self, start: int, end: int | None = None) -> str:
        return str(self._tokenizer.decode(self._tokens[start:end], skip_special_tokens=True))

    def feed(self, token: int, *, last: bool) -> str:
        """Text that may be sent after one more token; with `last`, all that is left. A stop string sets `stopped`."""
        self._tokens.append(token)
        known, grown = self._decode(self._settled, self._read), self._decode(self._settled)
        if last or (len(grown) > len(known) and not grown.endswith(REPLACEMENT)):
            self._held += grown[len(known) :]
            self._settled, self._read = self._read, len(self._tokens)
        return self._release(last=last)

    def _release(self, *, last: bool) -> str:
        found = [place for text in self._stop if (place := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            safe = min(found)
        else:
            safe = len(self._held) - (0 if last else self._maybe_stop())
        text, self._held = self._held[:safe], self._held[safe:]
        return text

    def _maybe_stop(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        ends = range(min(len(self._held), max(map(len, self._stop), default=0)), 0, -1)
        return next((size for size in ends if any(text.startswith(self._held[-size:]) for text in self._stop)), 0)
