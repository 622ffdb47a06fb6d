"""What is running at a URL: every adapter is asked in turn, then the plain OpenAI API."""

from importlib.util import find_spec

import httpx

from draftmark.engines import openai
from draftmark.engines.known import NAMES, adapter
from draftmark.observation import ServerState


def probe(client: httpx.Client, url: str) -> ServerState | None:
    """The server's state by the first adapter that knows it; None where nothing at `url` speaks the OpenAI API.

    Raises:
        httpx.HTTPError: nothing answers there, or it refuses.
    """
    plain = openai.probe(client, url)
    if plain is None:
        return None
    for name in NAMES:
        state = adapter(name).probe(client, url) if find_spec(f"draftmark.engines.{name}") else None
        if state is not None:
            return state
    return plain
