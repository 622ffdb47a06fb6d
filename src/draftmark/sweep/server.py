"""The server under measurement: found, asked what it is, and spoken to in its own dialect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import msgspec

from draftmark.engines.probe import probe
from draftmark.errors import BadInput, DraftmarkError, EngineFailed, one_line
from draftmark.observation import ServerState
from draftmark.sweep.bounded import ASK_SECONDS
from draftmark.sweep.client import Client, Target, target_of
from draftmark.sweep.dialect import PROBE_TEXT, PROBE_TOKENS, Dialect, Route, negotiate
from draftmark.sweep.events import read
from draftmark.sweep.options import Asking, Event, Options
from draftmark.sweep.prompts import Prompt
from draftmark.sweep.tokens import Counter, FileCounter, ServerCounter, UsageCounter
from draftmark.sweep.watch import post_watched
from draftmark.units import Tokens

COMPLETIONS: Final[Route] = "/v1/completions"
CHAT: Final[Route] = "/v1/chat/completions"


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
    except httpx.HTTPError as problem:
        raise EngineFailed(silence(problem), place=place, remedy="see the end of its log") from None


async def _agree(
    http: httpx.Client, client: Client, base: str, options: Options, tell: Callable[[Event], None]
) -> Server:
    tell(Asking(what=f"{base} which models it serves", seconds=ASK_SECONDS))
    raw = server_state(http, base)
    model = _model(raw, options.model, base)
    state = _shown(raw)
    tell(Asking(what=f"{one_line(model)} for {PROBE_TOKENS} tokens", seconds=options.first_patience))
    dialect = await _dialect(client, model, options, base)
    counter = _counter(http, base, model, options, greedy="temperature" in dialect.extras)
    if dialect.route == COMPLETIONS:
        sends_ids = counter.encode("a", special=False) is not None and await _takes_ids(
            client, dialect, counter, options
        )
        return Server(http, client, state, msgspec.structs.replace(dialect, token_ids=sends_ids), counter)
    overhead = await _template(client, dialect, counter, options)
    return Server(http, client, state, msgspec.structs.replace(dialect, overhead=overhead), counter)


def server_state(http: httpx.Client, base: str) -> ServerState:
    """What the server says of itself.

    Raises:
        BadInput: nothing answers, or what answers is no such server.
    """
    try:
        state = probe(http, base)
    except httpx.ReadTimeout:
        raise BadInput(
            f"the server accepts connections and does not say within {ASK_SECONDS:g} s which models it serves",
            place=f"{base}/v1/models",
            remedy="is it still loading, or stuck? see its log",
        ) from None
    except httpx.HTTPStatusError as problem:
        status = problem.response.status_code
        if status in {401, 403}:
            raise BadInput(
                f"the server wants a key ({status})", place=base, remedy="give --api-key, or set OPENAI_API_KEY"
            ) from None
        raise BadInput(f"the server answers {status}", place=base, remedy="see its log") from None
    except httpx.HTTPError as problem:
        raise BadInput(f"the server does not answer ({problem})", place=base, remedy=_unreachable(problem)) from None
    if state is None:
        raise BadInput(
            "what answers is not an OpenAI-compatible server (no /v1/models)",
            place=base,
            remedy="give the address that serves /v1/models",
        )
    return state


def _shown(state: ServerState) -> ServerState:
    """The state with its names made harmless, and without sizes that cannot be."""

    def text(value: str | None) -> str | None:
        return None if value is None else one_line(value)

    def size(value: Tokens | None) -> Tokens | None:
        return value if value is not None and value > 0 else None

    return msgspec.structs.replace(
        state,
        engine=text(state.engine),
        version=text(state.version),
        device=text(state.device),
        models=tuple(one_line(model) for model in state.models),
        context=size(state.context),
        pool_tokens=size(state.pool_tokens),
        page=size(state.page),
        chunk=size(state.chunk),
        max_running=state.max_running if (state.max_running or 0) > 0 else None,
        draft_tokens=state.draft_tokens if (state.draft_tokens or 0) > 0 else None,
        observations=tuple(
            msgspec.structs.replace(
                seen,
                value=one_line(seen.value) if isinstance(seen.value, str) else seen.value,
                source=msgspec.structs.replace(seen.source, text=one_line(seen.source.text)),
            )
            for seen in state.observations
        ),
    )


def _unreachable(problem: httpx.HTTPError) -> str:
    if "CERTIFICATE" in str(problem).upper():
        return "give a URL with a valid certificate, or --insecure to skip the check"
    if "SSL" in str(problem).upper():
        return "is it http and not https?"
    return "start a server there (draftmark serve), or give another --url"


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


def _counter(http: httpx.Client, base: str, model: str, options: Options, *, greedy: bool) -> Counter:
    if options.tokenizer is not None:
        return FileCounter(options.tokenizer)
    counter = ServerCounter(http, base, model)
    return counter if counter.encode("a", special=False) is not None else UsageCounter(http, base, model, greedy=greedy)


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
