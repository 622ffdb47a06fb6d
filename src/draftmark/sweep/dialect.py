"""How this server wants to be spoken to, found out with requests of a few tokens before anything is measured."""

from typing import Final, Literal

import msgspec

from draftmark.errors import BadInput, EngineFailed, one_line
from draftmark.sample import CountSource
from draftmark.sweep.client import Client
from draftmark.sweep.events import Stream, read, said_by
from draftmark.sweep.exchange import Exchange
from draftmark.sweep.found import refused
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.route import Route, prompt_fields
from draftmark.sweep.watch import post_watched

PROBE_TEXT: Final = "The tide tables of the harbour say that"
PROBE_TOKENS: Final = 4

Limit = Literal["max_tokens", "max_completion_tokens"]
"""What the longest output is called: the second by chat models of OpenAI that refuse the first."""
Extra = Literal["continuous_usage_stats", "include_usage", "ignore_eos", "seed", "temperature"]
_OPTIONAL: Final[tuple[Extra, ...]] = ("continuous_usage_stats", "ignore_eos", "seed", "include_usage", "temperature")
"""In the order in which they are given up where a server refuses without saying which it does not know."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What requests look like, and how exactly the answers count."""

    route: Route
    model: str
    token_ids: bool
    extras: tuple[Extra, ...] = _OPTIONAL
    limit: Limit = "max_tokens"
    counted_by: CountSource = "none"
    overhead: int | None = None
    """Tokens that the chat template adds around a text; None on completions."""
    reports_cached: bool = False

    def body(self, prompt: Prompt, *, output: int, seed: int) -> bytes:
        """The request as JSON."""
        fields: dict[str, object] = {"model": self.model, self.limit: output, "stream": True}
        fields |= prompt_fields(self.route, prompt.text if prompt.ids is None else prompt.ids)
        options = {name: True for name in ("include_usage", "continuous_usage_stats") if name in self.extras}
        if options:
            fields["stream_options"] = options
        if "ignore_eos" in self.extras:
            fields["ignore_eos"] = True
        if "temperature" in self.extras:
            fields["temperature"] = 0
        if "seed" in self.extras:
            fields["seed"] = seed
        return msgspec.json.encode(fields)


async def negotiate(client: Client, dialect: Dialect, *, place: str, patience: float) -> Dialect:
    """The dialect without what the server refuses, and with what its answer taught.

    Raises:
        BadInput: no such model, no permission, no such API; EngineFailed: the server fails on a few tokens.
    """
    prompt = Prompt(ids=None, text=PROBE_TEXT)
    for _ in range(len(_OPTIONAL) + 2):
        body = dialect.body(prompt, output=PROBE_TOKENS, seed=0)
        exchange = await post_watched(client, dialect.route, body, output=PROBE_TOKENS, patience=patience)
        if exchange.status == 400 and dialect.limit == "max_tokens" and b"max_completion_tokens" in exchange.body:
            dialect = msgspec.structs.replace(dialect, limit="max_completion_tokens")
            continue
        if exchange.status in {400, 422} and dialect.extras:
            dialect = msgspec.structs.replace(dialect, extras=_fewer(dialect.extras, exchange))
            continue
        stream = read(exchange.pieces if exchange.status == 200 else (), exchange.sent)
        if stream.said is None:
            _refuse(exchange, dialect, place)
        if stream.said or stream.error or not stream.arrivals:
            raise EngineFailed(
                stream.said or stream.error or f"the server streamed no output; it sent: {message(exchange)}",
                place=place + dialect.route,
                remedy="check that the model is loaded and that this is an OpenAI-compatible server",
            )
        return _learned(dialect, stream)
    raise BadInput(
        f"even a plain request is refused ({message(exchange)})", place=place + dialect.route, remedy="see its log"
    )


def _learned(dialect: Dialect, stream: Stream) -> Dialect:
    return msgspec.structs.replace(
        dialect, counted_by=stream.counted_by, reports_cached=stream.cached_tokens is not None
    )


def _fewer(extras: tuple[Extra, ...], exchange: Exchange) -> tuple[Extra, ...]:
    """The extras without the one that the refusal names, or without the first."""
    text = exchange.body.decode(errors="replace")
    named = next((name for name in extras if name in text), None)
    if named is None and "stream_options" in text:
        named = next((name for name in extras if name in {"continuous_usage_stats", "include_usage"}), None)
    return tuple(name for name in extras if name != (named or extras[0]))


def _refuse(exchange: Exchange, dialect: Dialect, place: str) -> None:
    where = place + dialect.route
    if exchange.failure is not None:
        raise EngineFailed(exchange.failure, place=where, remedy="is the server still running? see its log")
    if exchange.status == 404:
        raise BadInput(
            f"the server has no such route, or no model {dialect.model!r} ({message(exchange)})",
            place=where,
            remedy="name one of its models with --model, or the other API with --api",
        )
    if exchange.status is not None and exchange.status != 200:
        raise refused(exchange.status, message(exchange), place=where, location=exchange.location)


def message(exchange: Exchange) -> str:
    """What the server says is wrong, on one line."""
    return said_by(exchange.body) or one_line(exchange.body[:2000].decode(errors="replace")) or "no reason given"
