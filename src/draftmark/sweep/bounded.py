"""An HTTP client whose answers have an end: in bytes, and in seconds."""

import ssl
import time
from collections.abc import Iterator
from typing import Final

import httpx

LARGEST: Final = 2**28
"""Bytes of one answer: the token ids of ten million tokens of text are 80 million."""
ASK_SECONDS: Final = 10.0
"""For what a server answers without thinking: its models, version, counters."""
COUNT_SECONDS: Final = 60.0
"""For counting a long text, or a request of one token."""


class _Body(httpx.SyncByteStream):
    """A body that raises where it does not end."""

    def __init__(self, stream: httpx.SyncByteStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > LARGEST:
                raise httpx.RemoteProtocolError(f"the answer does not end: {size:,} bytes came")
            if time.monotonic() > self._deadline:
                raise httpx.ReadTimeout("the answer does not end in time")
            yield piece

    def close(self) -> None:
        self._stream.close()


class Bounded(httpx.HTTPTransport):
    """A transport that reads no more than `LARGEST` bytes of a body, and no longer than the request's read timeout."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx."""
        seconds = request.extensions["timeout"]["read"]
        deadline = time.monotonic() + seconds
        reply = super().handle_request(request)
        assert isinstance(reply.stream, httpx.SyncByteStream), "a synchronous transport has no other"
        return httpx.Response(
            reply.status_code,
            headers=reply.headers,
            stream=_Body(reply.stream, deadline),
            extensions=reply.extensions,
        )


def bounded_client(headers: dict[str, str], *, verify: ssl.SSLContext | bool) -> httpx.Client:
    """A client for questions beside the measured requests. It asks no proxy, as the measured requests do not."""
    return httpx.Client(headers=headers, timeout=ASK_SECONDS, transport=Bounded(verify=verify, trust_env=False))
