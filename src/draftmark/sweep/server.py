"""The server under measurement: found, asked what it is, and spoken to in its own dialect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import msgspec

from draftmark.engines.probe import probe
from draftmark.errors import BadInput, DraftmarkError, EngineFailed, one_line
from draftmark.observation import ServerState
from draftmark.sweep.bounded import ASK_SECONDS
from draftmark.sweep.client import Client, Target, target_of
from draftmark.sweep.dialect import PROBE_TEXT, PROBE_TOKENS, Dialect, negotiate
from draftmark.sweep.events import read
from draftmark.sweep.found import harmless_state, server_state
from draftmark.sweep.options import Asking, Event, Options
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.route import CHAT, COMPLETIONS, Route
from draftmark.sweep.tokens import Counter, FileCounter, ServerCounter, UsageCounter
from draftmark.sweep.watch import post_watched


class Server:
    """A running server: its state, how it is spoken to, and who counts its tokens."""

    def __init__(
        self, http: httpx.Client, client: Client, state: ServerState, dialect: Dialect, counter: Counter
    ) -> None:
        self.http, self.client, self.state, self.dialect, self.counter = http, client, state, dialect, counter

    @property
    def target(self) -> Target:
        """Where it is."""
        return self.client.target

    def flush(self) -> bool:
        """Empty the prefix cache where the server can; whether it said that it did."""
        if self.state.cache_flush is None:
            return False
        try:
            reply = self.http.post(self.state.url + self.state.cache_flush)
        except httpx.HTTPError:
            return False
        return reply.status_code == 200

    def restarted(self) -> bool:
        """The process is another than at the beginning, by its start time; False where that is not known."""
        if self.state.started is None:
            return False
        try:
            now = probe(self.http, self.state.url)
        except httpx.HTTPError:
            return False
        return now is not None and now.started is not None and abs(now.started - self.state.started) > 1.0


def server_target(url: str, options: Options) -> tuple[Target, str]:
    """Where requests go, and the URL without /v1.

    Raises:
        BadInput: that is not a URL.
    """
    base = url.rstrip("/").removesuffix("/v1")
    try:
        return target_of(base, api_key=options.api_key, insecure=options.insecure), base
    except ValueError as problem:
        raise BadInput(str(problem), place="--url", remedy="write it as in http://127.0.0.1:8000") from None


async def open_server(
    http: httpx.Client, client: Client, base: str, options: Options, *, tell: Callable[[Event], None]
) -> Server:
    """Probe the server and agree on how to speak with it; `tell` hears what is waited for.

    Raises:
        BadInput: nothing answers, it is no such server, or it wants a key or another model.
        EngineFailed: it does not manage a few tokens.
    """
    with while_it_answers(base):
        return await _agree(http, client, base, options, tell)


def silence(problem: httpx.HTTPError) -> str:
    """What is to be said of a server that did not answer a small request: one that is slow need not be gone."""
    if isinstance(problem, httpx.TimeoutException):
        return "the server did not answer a small request in time"
    return f"the server no longer answers ({problem})"


@contextmanager
def while_it_answers(place: str) -> Iterator[None]:
    """Turn a server that is gone within the block into EngineFailed."""
    try:
        yield
    except httpx.HTTPStatusError as problem:
        status = problem.response.status_code
        raise EngineFailed(
            f"the server answers {status} where it is asked to count tokens",
            place=str(problem.request.url),
            remedy="give --tokenizer, so that it need not, or see its log",
        ) from None
    except httpx.HTTPError as problem:
        raise EngineFailed(silence(problem), place=place, remedy="see the end of its log") from None


async def _agree(
    http: httpx.Client, client: Client, base: str, options: Options, tell: Callable[[Event], None]
) -> Server:
    tell(Asking(what=f"{base} which models it serves", seconds=ASK_SECONDS))
    raw = server_state(http, base)
    model = _model(raw, options.model, base)
    state = harmless_state(raw)
    tell(Asking(what=f"{one_line(model)} for {PROBE_TOKENS} tokens", seconds=options.first_patience))
    dialect = await _dialect(client, model, options, base)
    counter = _counter(http, base, dialect, options)
    if dialect.route == COMPLETIONS:
        sends_ids = counter.encode("a", special=False) is not None and await _takes_ids(
            client, dialect, counter, options
        )
        return Server(http, client, state, msgspec.structs.replace(dialect, token_ids=sends_ids), counter)
    overhead = await _template(client, dialect, counter, options)
    return Server(http, client, state, msgspec.structs.replace(dialect, overhead=overhead), counter)


def _model(state: ServerState, asked: str | None, base: str) -> str:
    if asked is not None:
        if state.models and asked not in state.models:
            raise BadInput(
                f"the server has no model {asked!r}", place=base, remedy=one_line(f"it has {', '.join(state.models)}")
            )
        return asked
    if not state.models:
        raise BadInput("the server lists no models", place=base, remedy="name one with --model")
    return state.models[0]


async def _dialect(client: Client, model: str, options: Options, base: str) -> Dialect:
    """Completions before chat where either may do: it takes token ids and adds no template."""
    routes: tuple[Route, ...] = {"auto": (COMPLETIONS, CHAT), "completions": (COMPLETIONS,), "chat": (CHAT,)}[
        options.api
    ]
    first: DraftmarkError | None = None
    for route in routes:
        try:
            dialect = Dialect(route=route, model=model, token_ids=False)
            return await negotiate(client, dialect, place=base, patience=options.first_patience)
        except BadInput as problem:
            first = first or problem
    assert first is not None
    raise first


def _counter(http: httpx.Client, base: str, dialect: Dialect, options: Options) -> Counter:
    if options.tokenizer is not None:
        return FileCounter(options.tokenizer)
    counter = ServerCounter(http, base, dialect.model)
    if counter.encode("a", special=False) is not None:
        return counter
    return UsageCounter(http, base, dialect.route, dialect.model, greedy="temperature" in dialect.extras)


async def _takes_ids(client: Client, dialect: Dialect, counter: Counter, options: Options) -> bool:
    """A prompt of ids is accepted and counted as what it is."""
    ids = counter.encode(PROBE_TEXT, special=True)
    body = dialect.body(Prompt(ids=ids, text=""), output=PROBE_TOKENS, seed=0)
    patience = options.first_patience
    exchange = await post_watched(client, dialect.route, body, output=PROBE_TOKENS, patience=patience)
    if exchange.failure is not None or exchange.status != 200 or ids is None:
        return False
    stream = read(exchange.pieces, exchange.sent)
    return stream.said is None and stream.error is None and stream.prompt_tokens in {None, len(ids)}


async def _template(client: Client, dialect: Dialect, counter: Counter, options: Options) -> int | None:
    """Tokens that the chat template adds around a text; None where the server reports no usage."""
    body = dialect.body(Prompt(ids=None, text=PROBE_TEXT), output=PROBE_TOKENS, seed=0)
    patience = options.first_patience
    exchange = await post_watched(client, dialect.route, body, output=PROBE_TOKENS, patience=patience)
    stream = read(exchange.pieces, exchange.sent)
    if stream.prompt_tokens is None:
        return None
    return max(stream.prompt_tokens - counter.count(PROBE_TEXT, special=False), 0)
