"""The pretence of a model behind the ground-truth server: a tokenizer, a prefix cache, limits and faults."""

import re
import zlib
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from draftmark.selftest.schedule import Pace, Shape

BOS: Final = 1
PAGE: Final = 16
TEMPLATE: Final = (2, 3, 4, 5, 6, 7, 8, 9)
"""Ids that the pretended chat template adds."""
_WORD: Final = re.compile(r"\s*[A-Za-z]{1,7}|\s*\d{1,3}|\s?[^\sA-Za-z\d]{1,3}|\s+")

FaultKind = Literal["die", "hang", "stall", "retract", "refuse", "break off", "lie", "unavailable"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in the request after `requests` sound ones, once `chunks` of it are sent."""

    kind: FaultKind
    requests: int = 0
    chunks: int = 0
    seconds: float = 0.0
    """How long a stall or a retraction takes."""
    tokens: int = 0
    """By how much a lie about the prompt's tokens is wrong."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How the server behaves until it is told otherwise."""

    shape: Shape = "plain"
    pace: Pace = Pace()
    context: int = 300_000
    reports_context: bool = True
    pool: int = 1_000_000
    max_running: int = 256
    token_ids: bool = True
    tokenize: bool = True
    completions: bool = True
    """Serve /v1/completions beside the chat."""
    reports_cached: bool = True
    metrics: bool = True
    api_key: str | None = None
    strict: bool = False
    """Refuse fields that are not in OpenAI's API."""
    completion_limit: bool = False
    """Refuse max_tokens and take max_completion_tokens instead."""
    prefix_cache: bool = True
    bos: bool = True
    fault: Fault | None = None


def words(text: str) -> tuple[int, ...]:
    """Ids of a text: short words and their leading space, as byte-pair encodings make them, hashed."""
    return tuple(10 + zlib.crc32(word.encode()) % 50_000 for word in _WORD.findall(text))


Encode = Callable[[str], tuple[int, ...]]


def file_encoder(path: str) -> Encode:
    """The encoder of a tokenizer.json."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    return lambda text: tuple(tokenizer.encode(text, add_special_tokens=False).ids)


class PrefixCache:
    """Whole pages of earlier prompts, by the hash of all that comes before them."""

    def __init__(self) -> None:
        self._pages: set[int] = set()

    def take(self, ids: tuple[int, ...]) -> int:
        """Tokens of the prompt that were there; all of its pages are from now on. The last token is never cached."""
        cached, chain, matching = 0, 0, True
        for start in range(0, len(ids) - PAGE + 1, PAGE):
            chain = hash((chain, ids[start : start + PAGE]))
            matching = matching and chain in self._pages
            if matching and start + PAGE < len(ids):
                cached += PAGE
            self._pages.add(chain)
        return cached

    def flush(self) -> None:
        """Forget everything."""
        self._pages.clear()
