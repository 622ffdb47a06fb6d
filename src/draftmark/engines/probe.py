"""What is running at a URL: every adapter is asked in turn, then the plain OpenAI API."""

from collections.abc import Callable
from typing import Final

import httpx

from draftmark.engines import openai
from draftmark.observation import ServerState

Probe = Callable[[httpx.Client, str], ServerState | None]

PROBES: Final[tuple[Probe, ...]] = (openai.probe,)
"""In the order in which they are tried; the plain API answers for every engine and comes last."""


def probe(client: httpx.Client, url: str) -> ServerState | None:
    """The server's state by the first adapter that knows it; None where nothing at `url` speaks the OpenAI API.

    Raises:
        httpx.HTTPError: nothing answers there, or it refuses.
    """
    for ask in PROBES:
        state = ask(client, url)
        if state is not None:
            return state
    return None
