"""Is the output at depth what a sound model writes? A fast point of garbage is worse than a slow one.

A fact is planted in the middle of a prompt of the depth measured, and asked for at its end; log-probabilities must be
finite, and the output must not be one token over and over. A model that does not find the fact even at the shortest
depth (random weights, too small) is not held to it at the others.
"""

import math
import random
from collections import Counter
from typing import Final

import httpx
import msgspec

from draftmark.engines.answer import decoded
from draftmark.sweep.prompts import PromptMaker
from draftmark.sweep.route import COMPLETIONS, prompt_fields
from draftmark.sweep.server import Server

ANSWER_TOKENS: Final = 24
ROOM: Final = 80
"""Tokens left for the fact and the question."""
DEGENERATE: Final = 0.8
"""Share of the output that one piece may make up."""


class _Logprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    content: list["_Token"] | None = None


class _Token(msgspec.Struct):
    token: str
    logprob: float | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class Sanity(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen; None where the server did not give what would tell."""

    depth: int
    found: bool
    """The planted number is in the answer."""
    finite: bool | None
    varied: bool | None
    text: str


def planted(text: str, number: int) -> str:
    """The text with the fact in its middle, at a line's end, and the question after it."""
    middle = text.find("\n", len(text) // 2) + 1
    fact = f"The harbour master's number is {number}.\n"
    question = "\nQuestion: what is the harbour master's number?\nAnswer: the harbour master's number is"
    return text[:middle] + fact + text[middle:] + question


def ask(server: Server, maker: PromptMaker, depth: int, *, seed: int, patience: float) -> Sanity | None:
    """Ask at a depth (give or take a few tokens); None where it is too short, or the server refuses the question.

    A server that refuses log-probabilities is asked without them.
    """
    if depth < 2 * ROOM:
        return None
    number = random.Random(seed).randrange(100_000, 1_000_000)
    prompt = planted(maker.text(depth - ROOM), number)
    route = server.dialect.route
    body = {"model": server.dialect.model, server.dialect.limit: ANSWER_TOKENS, "temperature": 0}
    body |= prompt_fields(route, prompt)
    for extra in ({"logprobs": 1 if route == COMPLETIONS else True}, {}):
        reply = server.http.post(server.state.url + route, json=body | extra, timeout=patience)
        if reply.status_code == httpx.codes.OK:
            return judge(reply.content, depth=depth, number=number)
    return None


def judge(content: bytes, *, depth: int, number: int) -> Sanity | None:
    """What an answer says; JSON has no NaN, so that one which cannot be read for it is not finite."""
    answer = decoded(content, _Answer)
    if answer is None:
        broken = any(word in content for word in (b"NaN", b"Infinity"))
        return Sanity(depth=depth, found=False, finite=False, varied=None, text="") if broken else None
    if not answer.choices:
        return None
    choice = answer.choices[0]
    text = _text(choice)
    tokens, logprobs = _tokens(choice.logprobs)
    return Sanity(
        depth=depth,
        found=str(number) in text.replace(",", ""),
        finite=all(value is not None and math.isfinite(value) for value in logprobs) if logprobs else None,
        varied=_varied(tokens or text.split()),
        text=text[:200],
    )


def _text(choice: _Choice) -> str:
    if choice.message is None:
        return choice.text or ""
    parts = (choice.message.reasoning_content, choice.message.reasoning, choice.message.content)
    return "".join(part for part in parts if part)


def _tokens(logprobs: _Logprobs | None) -> tuple[list[str], list[float | None]]:
    if logprobs is None:
        return [], []
    if logprobs.content is not None:
        return [token.token for token in logprobs.content], [token.logprob for token in logprobs.content]
    return logprobs.tokens or [], logprobs.token_logprobs or []


def _varied(pieces: list[str]) -> bool | None:
    """No piece makes up most of the output; None of fewer than eight."""
    if len(pieces) < 8:
        return None
    return Counter(pieces).most_common(1)[0][1] <= DEGENERATE * len(pieces)


def flag(seen: Sanity | None, first: Sanity | None) -> str | None:
    """What a reader should know; `first` is what was seen at the shortest depth."""
    if seen is None:
        return "sanity not checked: the server refuses the question, or the depth is too short for it"
    if seen.finite is False:
        return "log-probabilities are not finite: the output is garbage"
    if seen.varied is False and (first is None or first.varied is not False):
        return "the output is one token over and over: it may be garbage"
    if not seen.found and first is not None and first.found:
        return f"a fact planted in the middle was found at {first.depth:,} tokens and is not at this depth"
    if not seen.found and (first is None or first is seen):
        return "a planted fact is not found even here: sanity at depth cannot be told for this model"
    return None
