"""What a streamed answer says: bytes with their times in, arrivals and the server's own counts out. Pure."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from draftmark.engines.answer import decoded
from draftmark.errors import one_line
from draftmark.sample import Arrival, CountSource
from draftmark.units import Seconds, Tokens

KEPT_TEXT: Final = 2000
"""Characters of the output that are kept with a sample."""


class Delta(msgspec.Struct):
    """What one chunk of a chat adds. SGLang calls reasoning `reasoning_content`, vLLM `reasoning`."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk, of either API."""

    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class PromptDetails(msgspec.Struct):
    """Part of the usage."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's counts, so far or in all."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Chunk(msgspec.Struct):
    """One event of the stream. `error` is what several servers send instead of a status once they stream."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    error: msgspec.Raw | None = None
    object: str | None = None
    message: str | None = None
    """Beside `object: "error"`, where an error is not nested."""


class Stream(msgspec.Struct, kw_only=True):
    """A stream as read. Times are those given with the bytes; `done` tells a stream that was ended as it should be."""

    arrivals: tuple[Arrival, ...]
    prompt_tokens: Tokens | None
    cached_tokens: Tokens | None
    completion_tokens: Tokens | None
    counted_by: CountSource
    finish_reason: str | None
    text: str
    answer_at: Seconds | None
    done: bool
    said: str | None = None
    """The server's own words on why it broke off."""
    error: str | None = None
    """Why the rest cannot be read."""


_decoder: Final = msgspec.json.Decoder(Chunk)
_DONE: Final = b"[DONE]"


def payloads(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Data of server-sent events, each with the time of the piece that completed it.

    Pieces may end anywhere, within a character or a line. Comments (keep-alive), event names and ids are passed over.
    """
    rest = b""
    data: list[bytes] = []
    for at, piece in pieces:
        lines = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif data and (not line or line == b"\r"):
                yield at, data[0] if len(data) == 1 else b"\n".join(data)
                data = []
    if data:
        yield at, b"\n".join(data)


def _plausible(usage: Usage) -> Usage:
    """The usage without counts below zero, which say nothing."""
    details = usage.prompt_tokens_details
    return Usage(
        prompt_tokens=_count(usage.prompt_tokens),
        completion_tokens=_count(usage.completion_tokens),
        prompt_tokens_details=None if details is None else PromptDetails(cached_tokens=_count(details.cached_tokens)),
    )


def _count(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


class _Reading:
    """Counts and texts as they grow while a stream is read."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, int | None]] = []
        self.counted = 0
        self.ids = 0
        self.usage: Usage | None = None
        self.usage_grew = 0
        self.finish_reason: str | None = None
        self.text: list[str] = []
        self.reasoned = False
        self.answer_at: float | None = None

    def take(self, at: float, chunk: Chunk) -> None:
        """One event. Only what carries output is an arrival: text, reasoning, a tool call, ids, or a grown count."""
        output = False
        for choice in chunk.choices:
            output = self._choice(at, choice) or output
        usage = None if chunk.usage is None else _plausible(chunk.usage)
        known: int | None = None
        if usage is not None:
            self.usage = usage
            if chunk.choices and usage.completion_tokens is not None:
                known = usage.completion_tokens
                output = output or known > self.counted
                self.usage_grew += known > self.counted
                self.counted = known
        if output:
            self.arrivals.append((at, known if known is not None else self.ids or None))

    def _choice(self, at: float, choice: Choice) -> bool:
        delta = choice.delta
        answer = choice.text if delta is None else delta.content
        thought = None if delta is None else delta.reasoning_content or delta.reasoning
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
        if thought:
            self.reasoned = True
        if answer and self.reasoned and self.answer_at is None:
            self.answer_at = at
        if answer or thought:
            self.text.append(answer or thought or "")
        if choice.token_ids:
            self.ids += len(choice.token_ids)
        return bool(answer or thought or choice.token_ids or (delta is not None and delta.tool_calls is not None))


def read(pieces: Iterable[tuple[float, bytes]], sent: float) -> Stream:
    """The stream's arrivals, in seconds after `sent`, with cumulative tokens where the server stated them."""
    reading = _Reading()
    done, said, error = False, None, None
    for at, payload in payloads(pieces):
        if payload == _DONE:
            done = True
            break
        try:
            chunk = _decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as problem:
            said = said_by(payload)
            words = one_line(payload[:400].decode(errors="replace"), 120)
            error = f"an event of the stream is not understood ({problem}): {words}"
            break
        if chunk.error is not None or chunk.object == "error":
            said = said_by(payload) or "the server broke off and gave no reason"
            break
        reading.take(at, chunk)
    return msgspec.structs.replace(_stream(reading, sent, done=done), said=said, error=error)


class _Problem(msgspec.Struct):
    message: str


def said_by(body: bytes) -> str | None:
    """The message in an error that the server sent, on one line and harmless; None where there is none."""
    for field in ("error", "detail", "message"):
        value = (decoded(body, dict[str, msgspec.Raw]) or {}).get(field)
        if value is not None and bytes(value) != b"null":
            return one_line(_message(bytes(value)))
    return None


def _message(value: bytes) -> str:
    """OpenAI nests the message, vLLM before 0.10 and SGLang do not, FastAPI gives a list."""
    text, problem = decoded(value, str), decoded(value, _Problem)
    if text is not None:
        return text
    return problem.message if problem is not None else value.decode(errors="replace")


def _stream(reading: _Reading, sent: float, *, done: bool) -> Stream:
    usage = reading.usage or Usage()
    details = usage.prompt_tokens_details or PromptDetails()
    counted_by, cumulative = _counts(reading, usage)
    total = usage.completion_tokens if usage.completion_tokens is not None else (reading.ids or None)
    return Stream(
        arrivals=tuple(
            Arrival(at=Seconds(at - sent), tokens=None if tokens is None else Tokens(tokens))
            for (at, _), tokens in zip(reading.arrivals, cumulative, strict=True)
        ),
        prompt_tokens=None if usage.prompt_tokens is None else Tokens(usage.prompt_tokens),
        cached_tokens=None if details.cached_tokens is None else Tokens(details.cached_tokens),
        completion_tokens=None if total is None else Tokens(total),
        counted_by=counted_by,
        finish_reason=reading.finish_reason,
        text="".join(reading.text)[:KEPT_TEXT],
        answer_at=None if reading.answer_at is None else Seconds(reading.answer_at - sent),
        done=done,
    )


def _counts(reading: _Reading, usage: Usage) -> tuple[CountSource, list[int | None]]:
    """How tokens were counted, and the count at every arrival.

    Counts with the chunks must grow to the sum: a server that states its sum with every chunk, or less than it claims
    in the end, does not tell what a chunk brought. With one usage at the end, a stream of exactly as many chunks as
    tokens brought one a chunk, and one of a single chunk brought them all; otherwise each chunk's count is unknown.
    """
    counts = [tokens for _, tokens in reading.arrivals]
    if reading.usage_grew and _consistent(counts, usage.completion_tokens):
        return "usage per chunk", counts
    if reading.ids and (usage.completion_tokens is None or reading.ids == usage.completion_tokens):
        return "token ids", counts
    if usage.completion_tokens is not None:
        if len(counts) == usage.completion_tokens:
            return "usage at the end", list(range(1, len(counts) + 1))
        return "usage at the end", [None] * (len(counts) - 1) + [usage.completion_tokens] if counts else []
    return ("chunks" if counts else "none"), [None] * len(counts)


def _consistent(counts: list[int | None], total: int | None) -> bool:
    """The counts are all there, grow, never fall, and end with the sum."""
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not known or (len(known) > 1 and known[0] == known[-1]):
        return False
    return total in {None, known[-1]} and all(before <= after for before, after in pairwise(known))
