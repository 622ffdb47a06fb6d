"""A streaming HTTP client that does nothing but stamp: bytes are kept with their times and read afterwards.

Clients that parse while they wait time their own parsing; here the clock is read first thing when bytes arrive, and
events are decoded only when no stream of the batch is open any more.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

import httptools
import msgspec

from draftmark.engines import address
from draftmark.sweep.exchange import LONGEST_LINE, Bounds, Exchange

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 1.0
"""Connections that were idle for longer are not used again: servers close them after some seconds (uvicorn: 5), and a
request that meets the closing is lost."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go: parts of the server's URL, and the headers of every request."""

    host: str
    port: int
    tls: bool
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    insecure: bool = False
    """Do not check the server's certificate."""


def target_of(url: str, *, api_key: str | None = None, insecure: bool = False) -> Target:
    """The parts of an http or https URL.

    Raises:
        ValueError: it is no such URL.
    """
    parts = address.split(url)
    tls = parts.scheme == "https"
    headers = (("Authorization", f"Bearer {api_key}"),) if api_key else ()
    return Target(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        tls=tls,
        path=parts.path.rstrip("/"),
        headers=headers,
        insecure=insecure,
    )


class Connection(asyncio.Protocol):
    """One kept-alive connection with one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.now = 0.0
        self.parser = httptools.HttpResponseParser(self)
        self.reusable = True
        self.framed = False
        self.head = 0
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.idle_since = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: the clock first."""
        self.now = time.monotonic()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as problem:
            self.fail(f"the answer is not HTTP: {problem}")
        if self.exchange is not None and self.exchange.status is None:
            self.head += len(data)
            if self.head > LONGEST_LINE:
                self.fail(f"the head of the answer does not end: {self.head:,} bytes came")

    def on_message_begin(self) -> None:
        """Called by the parser: an answer nobody asked for makes the connection useless."""
        self.framed = False
        self.head = 0
        if self.exchange is None:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() in {b"content-length", b"transfer-encoding"} and value:
            self.framed = True
        if name.lower() == b"location" and self.exchange is not None:
            self.exchange.location = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self.exchange is not None:
            self.exchange.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self.exchange is not None:
            excess = self.exchange.add(self.now, body)
            if excess is not None:
                self.fail(excess)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        exchange, self.exchange = self.exchange, None
        self.reusable = self.reusable and self.parser.should_keep_alive()
        if exchange is not None:
            exchange.ended = self.now
            if not exchange.finished.done():
                exchange.finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop. An answer without length or chunks ends with its connection, as HTTP allows."""
        self.reusable = False
        self.now = time.monotonic()
        if self.exchange is None:
            return
        if exc is None and self.exchange.status is not None and not self.framed:
            self.on_message_complete()
            return
        self.fail(f"the connection was lost ({exc})" if exc else "the server closed the connection")

    def fail(self, why: str) -> None:
        """End the exchange as failed and close the connection."""
        self.reusable = False
        exchange, self.exchange = self.exchange, None
        if exchange is not None and not exchange.finished.done():
            exchange.failure = why
            exchange.ended = self.now
            exchange.finished.set_result(None)
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Connections to one server, kept for reuse. Not for several event loops."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._idle: list[Connection] = []
        self._tls = tls_context(target)
        host = f"[{target.host}]" if ":" in target.host else target.host
        lines = [f"Host: {host}:{target.port}", "Accept: text/event-stream, application/json"]
        lines += [f"{name}: {value}" for name, value in target.headers]
        self._headers = "\r\n".join(lines)

    async def connect(self, count: int) -> None:
        """Have `count` idle connections, so that no handshake falls into a measurement.

        Raises:
            OSError: the server does not answer there.
        """
        self._drop_stale()
        missing = count - len(self._idle)
        self._idle += await asyncio.gather(*(self._open() for _ in range(missing)))

    async def post(
        self, path: str, body: bytes, *, output: int, watch: Callable[[Exchange], None] | None = None
    ) -> Exchange:
        """Send one request for `output` tokens and wait for the end of its answer; `watch` is given the exchange before
        it is sent.

        Never raises for what the server does: that is in the exchange.
        """
        exchange = Exchange(asyncio.get_running_loop().create_future(), Bounds.of(output))
        try:
            connection = await self._take()
        except OSError as problem:
            exchange.sent = exchange.ended = time.monotonic()
            exchange.failure = f"no connection could be opened ({problem or 'no answer'})"
            return exchange
        head = (
            f"POST {self.target.path}{path} HTTP/1.1\r\n{self._headers}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        connection.exchange = exchange
        if watch is not None:
            watch(exchange)
        assert connection.transport is not None
        exchange.sent = exchange.last = time.monotonic()
        connection.transport.write(head + body)
        try:
            await exchange.finished
        except asyncio.CancelledError:
            connection.fail("cancelled")
            raise
        if exchange.failure is not None:
            connection.fail(exchange.failure)
        elif connection.reusable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.transport.close()
        return exchange

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            transport = self._idle.pop().transport
            if transport is not None:
                transport.abort()

    def _drop_stale(self) -> None:
        now = time.monotonic()
        kept = []
        for connection in self._idle:
            if connection.reusable and now - connection.idle_since < IDLE_SECONDS:
                kept.append(connection)
            elif connection.transport is not None:
                connection.transport.close()
        self._idle = kept

    async def _take(self) -> Connection:
        self._drop_stale()
        if self._idle:
            return self._idle.pop()
        return await self._open()

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await loop.create_connection(Connection, self.target.host, self.target.port, ssl=self._tls)
        return connection


def tls_context(target: Target) -> ssl.SSLContext | None:
    """How certificates are checked; None without TLS."""
    if not target.tls:
        return None
    context = ssl.create_default_context()
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
