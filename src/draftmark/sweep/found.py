"""What answers at a URL: a server's account of itself, or why it is none that can be measured."""

from typing import Final

import httpx
import msgspec

from draftmark.engines.probe import probe
from draftmark.errors import BadInput, DraftmarkError, EngineFailed, one_line
from draftmark.observation import ServerState
from draftmark.sweep.bounded import ASK_SECONDS
from draftmark.sweep.events import said_by
from draftmark.units import Tokens

LATER: Final = frozenset({408, 425, 429})
"""Refusals that say nothing of what was asked: it took too long, came too early, or too often."""


def server_state(http: httpx.Client, base: str) -> ServerState:
    """What the server says of itself.

    Raises:
        BadInput: nothing answers, it refuses, or what answers is no such server.
        EngineFailed: it answers that it fails (5xx).
    """
    place = f"{base}/v1/models"
    try:
        state = probe(http, base)
    except httpx.ReadTimeout:
        raise BadInput(
            f"the server accepts connections and does not say within {ASK_SECONDS:g} s which models it serves",
            place=place,
            remedy="is it still loading, or stuck? see its log",
        ) from None
    except httpx.HTTPStatusError as problem:
        reply = problem.response
        raise refused(
            reply.status_code, said_by(reply.content), place=place, location=reply.headers.get("location")
        ) from None
    except httpx.HTTPError as problem:
        raise BadInput(f"the server does not answer ({problem})", place=base, remedy=_unreachable(problem)) from None
    if state is None:
        raise BadInput(
            "what answers is not an OpenAI-compatible server (no /v1/models)",
            place=base,
            remedy="give the address that serves /v1/models",
        )
    return state


def refused(status: int, said: str | None, *, place: str, location: str | None = None) -> DraftmarkError:
    """What a status other than 200 means for the user; `said` are the server's own words."""
    words = f"{status} ({said})" if said else str(status)
    if status in {401, 403}:
        return BadInput(
            f"the server wants a key ({status})", place=place, remedy="give --api-key, or set OPENAI_API_KEY"
        )
    if 300 <= status < 400:
        where = one_line(location or "another address")
        return BadInput(
            f"the server answers {status} and points to {where}", place=place, remedy="give that address with --url"
        )
    if status in LATER:
        return EngineFailed(f"the server answers {words}: not now", place=place, remedy="wait, or lower the load")
    if status >= 500:
        return EngineFailed(f"the server answers {words}", place=place, remedy="is it still loading? see its log")
    return BadInput(f"the server answers {words}", place=place, remedy="see its log")


def harmless_state(state: ServerState) -> ServerState:
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
        longest_prompt=size(state.longest_prompt),
        longest_request=size(state.longest_request),
        ranks=max(state.ranks, 1),
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
    if isinstance(problem, httpx.ReadError | httpx.RemoteProtocolError):
        return "is it https and not http, or no web server at all?"
    return "start a server there (draftmark serve), or give another --url"
