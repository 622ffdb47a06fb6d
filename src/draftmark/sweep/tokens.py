"""Who counts tokens: the server's own /tokenize, a tokenizer.json beside us, or the usage of a small request."""

from pathlib import Path
from typing import Final, Protocol

import httpx
import msgspec

from draftmark.engines.answer import decoded
from draftmark.errors import BadInput
from draftmark.sweep.bounded import ASK_SECONDS, COUNT_SECONDS
from draftmark.sweep.route import Route, prompt_fields

SHORT: Final = 10_000
"""Characters that are counted in no time."""


class Counter(Protocol):
    """Counts tokens of a text as the server would; `special` adds what it puts around a prompt (BOS)."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def cheap(self) -> bool:
        """Counting a long text costs no prefill."""

    def encode(self, text: str, *, special: bool) -> tuple[int, ...] | None:
        """Token ids; None where only counts can be had."""

    def count(self, text: str, *, special: bool) -> int:
        """Tokens of the text."""


class _Tokenized(msgspec.Struct):
    tokens: list[int] | None = None
    count: int | None = None


class ServerCounter:
    """The server's /tokenize, as vLLM, SGLang and the embedded engine have it."""

    name = "the server's /tokenize"
    cheap = True

    def __init__(self, http: httpx.Client, url: str, model: str) -> None:
        self._http, self._url, self._model = http, f"{url}/tokenize", model

    def encode(self, text: str, *, special: bool) -> tuple[int, ...] | None:
        """Token ids; None where the endpoint is not there or gives none.

        Raises:
            httpx.HTTPError: the server is gone.
        """
        body = {"model": self._model, "prompt": text, "add_special_tokens": special}
        seconds = COUNT_SECONDS if len(text) > SHORT else ASK_SECONDS
        reply = self._http.post(self._url, json=body, timeout=seconds)
        if reply.status_code != 200:
            return None
        answer = decoded(reply.content, _Tokenized)
        return None if answer is None or answer.tokens is None else tuple(answer.tokens)

    def count(self, text: str, *, special: bool) -> int:
        """Tokens of the text."""
        ids = self.encode(text, special=special)
        if ids is None:
            raise httpx.RemoteProtocolError("/tokenize answered before and does not now")
        return len(ids)


_TOKENIZER: Final = "name a tokenizer.json or its folder"


class FileCounter:
    """A tokenizer.json, or a folder that holds one."""

    cheap = True

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        file = path / "tokenizer.json" if path.is_dir() else path
        self.name = str(file)
        if not file.is_file():
            raise BadInput("no tokenizer can be read: there is no such file", place=str(file), remedy=_TOKENIZER)
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as problem:  # noqa: BLE001 - tokenizers raises bare Exception for whatever ails the file
            raise BadInput(f"no tokenizer can be read ({problem})", place=str(file), remedy=_TOKENIZER) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Token ids."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def count(self, text: str, *, special: bool) -> int:
        """Tokens of the text."""
        return len(self.encode(text, special=special))


class _Usage(msgspec.Struct):
    prompt_tokens: int


class _Answered(msgspec.Struct):
    usage: _Usage | None = None


class UsageCounter:
    """The usage of a request for one token: the last resort.

    It cannot tell by itself what was added around the text (BOS, a chat's template): that is worked out, once.
    """

    name = "the usage of small requests"
    cheap = False

    def __init__(self, http: httpx.Client, url: str, route: Route, model: str, *, greedy: bool) -> None:
        self._http, self._url, self._route = http, f"{url}{route}", route
        self._fields: dict[str, object] = {"model": model, "max_tokens": 1}
        if greedy:
            # As what is measured: an engine's first sampled token may wait a minute for kernels that greedy ones spare.
            self._fields["temperature"] = 0
        self._added: int | None = None

    def encode(self, text: str, *, special: bool) -> None:  # noqa: ARG002 - the protocol's signature
        """None: usage gives counts alone."""
        return

    def count(self, text: str, *, special: bool) -> int:
        """Tokens of the text. What the server adds is worked out from one text once and twice in one prompt.

        Raises:
            httpx.HTTPError: the server refuses, or reports no usage.
        """
        if special:
            return self._usage(text)
        if self._added is None:
            line = "The quick brown fox jumps over the lazy dog.\n"
            self._added = 2 * self._usage(line) - self._usage(line + line)
        return self._usage(text) - self._added

    def _usage(self, text: str) -> int:
        body = self._fields | prompt_fields(self._route, text)
        reply = self._http.post(self._url, json=body, timeout=COUNT_SECONDS)
        reply.raise_for_status()
        answer = decoded(reply.content, _Answered)
        usage = None if answer is None else answer.usage
        if usage is None or usage.prompt_tokens < 0:
            raise httpx.RemoteProtocolError("the server reports no usage")
        return usage.prompt_tokens
