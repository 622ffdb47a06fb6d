"""Requests sent together, or when they are due, and what came of each."""

import asyncio
import contextlib
import time

import msgspec

from draftmark.errors import harmless, one_line
from draftmark.sample import Sample
from draftmark.sweep.client import Client
from draftmark.sweep.dialect import Dialect, message
from draftmark.sweep.events import read
from draftmark.sweep.exchange import Exchange
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.watch import Watch
from draftmark.units import Seconds, Tokens


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to send; `due` is seconds after the batch begins."""

    prompt: Prompt
    seed: int
    due: float = 0.0


async def send(
    client: Client, dialect: Dialect, requests: tuple[Request, ...], *, output: int, watch: Watch
) -> tuple[Sample, ...]:
    """All requests' samples in their order. Bodies are made and connections opened before the first is due; one that
    cannot be opened is tried again with its request, and that sample says why.

    Answers are decoded when the last has ended, so that decoding one never delays the stamps of another.
    """
    bodies = [dialect.body(request.prompt, output=output, seed=request.seed) for request in requests]
    with contextlib.suppress(OSError):
        await client.connect(len(requests) if all(request.due == 0 for request in requests) else 1)
    watcher = asyncio.create_task(watch.run())
    start = time.monotonic()
    try:
        exchanges = await asyncio.gather(
            *(
                _one(client, dialect, body, start + request.due, watch, output)
                for request, body in zip(requests, bodies, strict=True)
            )
        )
    finally:
        watcher.cancel()
    return tuple(
        sample(exchange, due=start + request.due, seed=request.seed)
        for request, exchange in zip(requests, exchanges, strict=True)
    )


async def _one(client: Client, dialect: Dialect, body: bytes, due: float, watch: Watch, output: int) -> Exchange:
    delay = due - time.monotonic()
    if delay > 0:
        await asyncio.sleep(delay)
    return await client.post(dialect.route, body, output=output, watch=watch.add)


def sample(exchange: Exchange, *, due: float, seed: int) -> Sample:
    """What one exchange measured; `error` says why it must not be used."""
    stream = read(exchange.pieces if exchange.status == 200 else (), exchange.sent)
    error = stream.said or exchange.failure or stream.error
    if error is None and exchange.status != 200:
        error = f"{exchange.status}: {message(exchange)}"
    if error is None and not stream.arrivals:
        error = "the server streamed no output"
    if error is None and not (stream.done or stream.finish_reason):
        error = "the stream ended before it was finished"
    return Sample(
        due=Seconds(due),
        sent=Seconds(exchange.sent),
        arrivals=stream.arrivals,
        ended=None if exchange.ended is None else Seconds(exchange.ended - exchange.sent),
        prompt_tokens=stream.prompt_tokens,
        cached_tokens=stream.cached_tokens,
        completion_tokens=None if stream.completion_tokens is None else Tokens(stream.completion_tokens),
        counted_by=stream.counted_by,
        finish_reason=None if stream.finish_reason is None else one_line(stream.finish_reason, 40),
        error=error,
        seed=seed,
        text=harmless(stream.text) or None,
        answer_at=stream.answer_at,
    )
