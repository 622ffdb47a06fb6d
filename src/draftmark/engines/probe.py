"""What is running at a URL: every adapter is asked in turn, then the plain OpenAI API."""

import httpx
import msgspec

from draftmark.engines import openai
from draftmark.engines.known import NAMES, adapter
from draftmark.observation import ServerState


def probe(client: httpx.Client, url: str) -> ServerState | None:
    """The server's state by the first adapter that knows it; None where nothing at `url` speaks the OpenAI API.

    Names of models are those of /v1/models, which is where requests take them from.

    Raises:
        httpx.HTTPError: nothing answers there, or it refuses.
    """
    plain = openai.probe(client, url)
    if plain is None:
        return None
    for name in NAMES:
        state = adapter(name).probe(client, url)
        if state is not None:
            context = plain.context if state.context is None else state.context
            return msgspec.structs.replace(state, models=plain.models, context=context)
    return plain
