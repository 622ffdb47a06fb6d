"""Any server that speaks the OpenAI API: what can be read of it without knowing which engine it is."""

from typing import Final

import httpx
import msgspec

from draftmark.engines.answer import decoded
from draftmark.observation import Observation, ServerState, Source
from draftmark.units import Tokens


class _Card(msgspec.Struct):
    """One model of /v1/models. vLLM and SGLang add `max_model_len`, llama.cpp `meta`."""

    id: str
    max_model_len: int | None = None
    owned_by: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


_NO_ROUTE: Final = {404, 405}
"""What a web server of another kind answers there."""


def probe(client: httpx.Client, url: str) -> ServerState | None:
    """Models and context length by /v1/models; None where that is not answered as the API says.

    Raises:
        httpx.HTTPError: nothing answers at `url`, it refuses or points elsewhere (a status error).
    """
    place = f"{url}/v1/models"
    reply = client.get(place)
    if reply.status_code in _NO_ROUTE:
        return None
    reply.raise_for_status()
    answer = decoded(reply.content, _Models)
    if answer is None:
        return None
    cards = answer.data
    lengths = {card.max_model_len for card in cards}
    length = lengths.pop() if len(lengths) == 1 else None
    context = None if length is None else Tokens(length)
    source = Source(place=place)
    observations = [Observation(quantity="model", value=card.id, unit="text", source=source) for card in cards]
    if context is not None:
        observations.append(Observation(quantity="context_length", value=context, unit="tokens", source=source))
    return ServerState(
        url=url,
        engine=None,
        version=None,
        models=tuple(card.id for card in cards),
        context=context,
        observations=tuple(observations),
    )
