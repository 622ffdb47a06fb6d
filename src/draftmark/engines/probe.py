"""What is running at a URL: every adapter is asked in turn, then the plain OpenAI API."""

from typing import Final

import httpx
import msgspec

from draftmark.configuration import EngineName
from draftmark.engines import openai
from draftmark.engines.known import adapter
from draftmark.observation import ServerState

ORDER: Final[tuple[EngineName, ...]] = ("vllm", "sglang", "embedded")
"""vLLM before those that are asked for /server_info: it is known without, and in its developer's mode looks over the
machine for seconds before it answers that."""


def probe(client: httpx.Client, url: str) -> ServerState | None:
    """The server's state by the first adapter that knows it; None where nothing at `url` speaks the OpenAI API.

    A server that lists its models and is silent on an engine's own questions is not that engine. Names of
    models are those of /v1/models, which is where requests take them from.

    Raises:
        httpx.HTTPError: nothing answers there, or it refuses.
    """
    plain = openai.probe(client, url)
    if plain is None:
        return None
    for name in ORDER:
        state = _asked(name, client, url)
        if state is not None:
            context = plain.context if state.context is None else state.context
            return msgspec.structs.replace(state, models=plain.models, context=context)
    return plain


def _asked(name: EngineName, client: httpx.Client, url: str) -> ServerState | None:
    try:
        return adapter(name).probe(client, url)
    except httpx.TimeoutException:
        return None
