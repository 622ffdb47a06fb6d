"""OpenAI's request bodies as far as the engine serves them, its errors, and what a reply is made of."""

from typing import Any, Final, TypeVar

import msgspec

from draftmark.embedded.generation import Sampling

NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "min_p": (0,),
    "tools": ([],),
    "response_format": ({"type": "text"},),
}
"""Fields that would change the output and are not served, with the values that change nothing."""


class ApiError(Exception):
    """A request that is refused: HTTP status, and the fields of OpenAI's error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, object]:
        """OpenAI's error object."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream carries besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    return_token_ids: bool = False

    @property
    def limit(self) -> int | None:
        """Most tokens of output that the client wants."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings; empty ones would stop everything and are left out."""
        several = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in several if text)

    def sampling(self) -> Sampling:
        """How tokens are chosen; OpenAI's defaults.

        Raises:
            ApiError: a value is out of its range.
        """
        sampling = Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=0 if self.top_k is None else max(self.top_k, 0),
            seed=self.seed,
        )
        if not 0 <= sampling.temperature <= 2:
            raise ApiError(400, f"temperature {sampling.temperature} is not from 0 to 2", param="temperature")
        if not 0 < sampling.top_p <= 1:
            raise ApiError(400, f"top_p {sampling.top_p} is not above 0 and at most 1", param="top_p")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ApiError(400, f"seed {self.seed} is not a 64-bit number", param="seed")
        return sampling


class CompletionBody(Body, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[int | str | list[int]]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat; parts that are not text are refused."""

    role: str
    content: str | list[dict[str, Any]]

    def plain(self) -> dict[str, str]:
        """Role and text, as chat templates want them."""
        if isinstance(self.content, str):
            return {"role": self.role, "content": self.content}
        texts = [part.get("text") for part in self.content]
        if not all(isinstance(text, str) for text in texts):
            raise ApiError(400, "only text parts are served", param="messages")
        return {"role": self.role, "content": "".join(map(str, texts))}


class ChatBody(Body, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /tokenize: a text, or the messages of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool = True


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]


Kind = TypeVar("Kind", CompletionBody, ChatBody, TokenizeBody, DetokenizeBody)


def read_body(raw: bytes, kind: type[Kind]) -> Kind:
    """A request's body.

    Raises:
        ApiError: 400 for what is not JSON or asks for what is not served, 422 for a field of a wrong type.
    """
    try:
        fields = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if isinstance(fields, dict):
        for name, neutral in NEUTRAL.items():
            if fields.get(name) is not None and fields[name] not in neutral:
                raise ApiError(400, f"{name}={fields[name]!r} is not served by the embedded engine", param=name)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ApiError(422, str(error)) from error


def usage(prompt: int, completion: int) -> dict[str, object]:
    """OpenAI's usage object; nothing is ever cached, since there is no prefix cache."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
