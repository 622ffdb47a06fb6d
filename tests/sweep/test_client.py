import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from draftmark.sweep import client as module
from draftmark.sweep.client import Client, target_of
from draftmark.sweep.exchange import Exchange, abort
from draftmark.sweep.watch import Patience, Watch

CLOSING = 0.15
"""Seconds after which the servers' sides of all connections are closed too."""
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def exchange_with(handler: Handler, *, times: int = 1, pause: float = 0.0) -> tuple[list[Exchange], int]:
    """What a client gets of a raw server for requests one after the other, and how many connections it opened."""
    opened = 0

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    async def run() -> list[Exchange]:
        server = await asyncio.start_server(served, "127.0.0.1", 0)
        client = Client(target_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        found = []
        for _ in range(times):
            found.append(await client.post("/v1/completions", b"{}", output=4))
            await asyncio.sleep(pause)
        client.close()
        server.close()
        await asyncio.sleep(CLOSING)
        return found

    return asyncio.run(run()), opened


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(2)


def answering(*parts: bytes, times: int = 1) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await request(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)

    return handler


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


def test_connections_are_kept_for_the_next_request() -> None:
    found, opened = exchange_with(answering(WHOLE, times=3), times=3)
    assert [(one.status, one.body, one.failure) for one in found] == [(200, b"body", None)] * 3
    assert opened == 1


def test_a_connection_that_was_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    found, opened = exchange_with(answering(WHOLE), times=2, pause=0.05)
    assert [one.failure for one in found] == [None, None]
    assert opened == 2


def test_pieces_have_the_times_at_which_they_came() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    (found,), _ = exchange_with(answering(chunked, b"2\r\nab\r\n", b"1\r\nc\r\n", b"0\r\n\r\n"))
    assert [piece for _, piece in found.pieces] == [b"ab", b"c"]
    times = [at for at, _ in found.pieces]
    assert found.sent < times[0] < times[1] <= (found.ended or 0)
    assert times[1] - times[0] > 0.005


def test_a_body_without_length_ends_with_its_connection() -> None:
    (found,), _ = exchange_with(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it"))
    assert (found.body, found.failure) == (b"all of it", None)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "closed the connection"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",), "closed the connection"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "not HTTP"),
    ],
)
def test_answers_that_are_none(parts: tuple[bytes, ...], words: str) -> None:
    (found,), _ = exchange_with(answering(*parts))
    assert words in str(found.failure)


def test_an_exchange_can_be_given_up_from_outside() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await asyncio.sleep(0.1)
        writer.close()

    async def run() -> Exchange:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        client = Client(target_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        watched: list[Exchange] = []
        task = asyncio.create_task(client.post("/", b"{}", output=4, watch=watched.append))
        await asyncio.sleep(0.05)
        abort(watched[0], "enough")
        found = await task
        client.close()
        server.close()
        await asyncio.sleep(CLOSING)
        return found

    assert asyncio.run(run()).failure == "enough"


def test_a_port_where_nobody_listens() -> None:
    async def run() -> Exchange:
        return await Client(target_of("http://127.0.0.1:9")).post("/", b"{}", output=4)

    assert "no connection could be opened" in str(asyncio.run(run()).failure)


def test_urls() -> None:
    target = target_of("https://[::1]/base/", api_key="k")
    assert (target.host, target.port, target.tls, target.path) == ("::1", 443, True, "/base")
    assert target.headers == (("Authorization", "Bearer k"),)
    with pytest.raises(ValueError, match="not an http"):
        target_of("ftp://x")


@pytest.mark.parametrize(
    ("number", "dead"), [(errno.EMFILE, False), (errno.ENFILE, False), (errno.EHOSTUNREACH, True), (None, True)]
)
def test_a_look_that_this_process_cannot_take_says_nothing_of_the_server(
    monkeypatch: pytest.MonkeyPatch, number: int | None, dead: bool
) -> None:
    async def refuse(*_: object) -> None:
        raise TimeoutError if number is None else OSError(number, "no")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    watch = Watch(target_of("http://127.0.0.1:1"), Patience(first=1.0, gap=1.0))

    async def look() -> list[str | None]:
        return [await watch.dead() for _ in range(3)]

    assert (asyncio.run(look())[-1] is not None) is dead
