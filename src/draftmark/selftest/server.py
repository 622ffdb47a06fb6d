"""The ground-truth server: `python -m draftmark.selftest.server`. It streams on an exact schedule and logs its sends.

Times in its log are CLOCK_MONOTONIC, which all processes of a Linux machine share, so a client's stamps can be held
against them directly. `/control` changes its setup, `/truth` gives the log, `/forget` sets its counters
back as a restart would.
"""

import argparse
import asyncio
import functools
import sys
import time
from typing import Any, Final

import httptools
import msgspec

from draftmark.selftest.clock import Clock, Sending
from draftmark.selftest.model import BOS, TEMPLATE, Encode, Fault, Setup, file_encoder, words
from draftmark.selftest.pretence import Pretence, Truth
from draftmark.selftest.schedule import Answer, Send, schedule

MODEL: Final = "truth"
_KNOWN: Final = {
    "model", "prompt", "messages", "max_tokens", "max_completion_tokens",
    "stream", "stream_options", "seed", "temperature",
}  # fmt: skip


@functools.lru_cache(maxsize=64)
def _sends(shape: Any, answer: Answer, ttft: float, step: float) -> tuple[Send, ...]:
    return tuple(schedule(shape, answer, ttft=ttft, step=step))


class Connection(asyncio.Protocol):
    """One client connection."""

    transport: asyncio.Transport

    def __init__(self, pretence: Pretence, clock: Clock) -> None:
        self.pretence, self.clock = pretence, clock
        self.parser = httptools.HttpRequestParser(self)
        self.url, self.body, self.key = b"", bytearray(), ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self.url, self.body, self.key = url, bytearray(), ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"authorization":
            self.key = value.decode().removeprefix("Bearer ")

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self.body += body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        received = time.monotonic()
        path = self.url.decode()
        wanted = self.pretence.setup.api_key
        if wanted is not None and path.startswith("/v1/") and self.key != wanted:
            self.refuse("Incorrect API key provided.", 401)
        elif path == "/v1/chat/completions" or (path == "/v1/completions" and self.pretence.setup.completions):
            self._generate(path, received)
        else:
            self._other(path)

    def reply(self, body: object, status: int = 200, kind: str = "application/json") -> None:
        """A whole answer."""
        data = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)

    def refuse(self, message: str, status: int = 400) -> None:
        """An error as OpenAI words it."""
        self.reply({"error": {"message": message, "type": "invalid_request_error", "code": status}}, status)

    def _other(self, path: str) -> None:
        pretence = self.pretence
        setup = pretence.setup
        if path == "/v1/models":
            length = setup.context if setup.reports_context else None
            self.reply({"data": [{"id": MODEL, "object": "model", "max_model_len": length}]})
        elif path == "/health":
            self.reply({})
        elif path == "/truth":
            self.reply(pretence.log)
            pretence.log = []
        elif path == "/control":
            pretence.setup = msgspec.json.decode(bytes(self.body), type=Setup)
            pretence.requests = 0
            pretence.cache.flush()
            self.reply({})
        elif path == "/forget":
            pretence.counted = dict.fromkeys(pretence.counted, 0)
            self.reply({})
        elif path == "/reset_prefix_cache":
            pretence.cache.flush()
            self.reply({})
        elif path == "/metrics" and setup.metrics:
            self.reply(pretence.metrics(), kind="text/plain")
        elif path == "/tokenize" and setup.tokenize:
            body = msgspec.json.decode(bytes(self.body))
            ids = self._ids(body["prompt"], special=body.get("add_special_tokens", True))
            self.reply({"tokens": ids, "count": len(ids), "max_model_len": setup.context})
        else:
            self.refuse(f"no route {path}", 404)

    def _ids(self, text: str, *, special: bool) -> tuple[int, ...]:
        bos = (BOS,) if special and self.pretence.setup.bos else ()
        return bos + self.pretence.encode(text)

    def _generate(self, path: str, received: float) -> None:
        pretence, setup = self.pretence, self.pretence.setup
        body = msgspec.json.decode(bytes(self.body))
        if body.get("model") != MODEL:
            self.refuse(f"The model `{body.get('model')}` does not exist.", 404)
            return
        unknown = set(body) - _KNOWN if setup.strict else set()
        if setup.strict and "continuous_usage_stats" in body.get("stream_options", {}):
            unknown.add("continuous_usage_stats")
        if unknown:
            self.refuse(f"Unrecognized request argument supplied: {sorted(unknown)[0]}")
            return
        if setup.completion_limit and "max_tokens" in body:
            self.refuse("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
            return
        ids = self._prompt(path, body)
        if ids is None:
            self.refuse("prompts must be text", 422)
            return
        output = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        limit = min(setup.context, setup.pool)
        if len(ids) + output > limit:
            self.refuse(f"{len(ids)} prompt tokens and {output} of output exceed the limit of {limit}")
            return
        pretence.requests += 1
        fault = pretence.fault()
        if fault is not None and fault.kind in {"refuse", "unavailable"}:
            self.refuse("CUDA out of memory", 500 if fault.kind == "refuse" else 503)
            return
        self._stream(path, body | {"max_tokens": output}, ids, fault, received)

    def _prompt(self, path: str, body: dict[str, Any]) -> tuple[int, ...] | None:
        if path.startswith("/v1/chat"):
            text = "".join(_text_of(message["content"]) for message in body["messages"])
            return self._ids("", special=True) + TEMPLATE[:4] + self._ids(text, special=False) + TEMPLATE[4:]
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return self._ids(prompt, special=True)
        return tuple(prompt) if self.pretence.setup.token_ids else None

    def _stream(
        self, path: str, body: dict[str, Any], ids: tuple[int, ...], fault: Fault | None, received: float
    ) -> None:
        setup = self.pretence.setup
        cached = self.pretence.cache.take(ids) if setup.prefix_cache else 0
        options = body.get("stream_options", {})
        answer = Answer(
            chat=path.startswith("/v1/chat"),
            prompt_tokens=len(ids) + (fault.tokens if fault is not None and fault.kind == "lie" else 0),
            cached_tokens=cached if setup.reports_cached else None,
            output=body["max_tokens"],
            usage=bool(options.get("include_usage")),
            usage_per_chunk=bool(options.get("continuous_usage_stats")),
        )
        ttft, step = setup.pace.ttft(len(ids) - cached), setup.pace.step_time(len(ids))
        if not body.get("stream"):
            self.reply({"choices": [{"index": 0, "text": " tide"}], "usage": {"prompt_tokens": answer.prompt_tokens}})
            return
        truth = Truth(seed=body.get("seed"), prompt_tokens=len(ids), received=received, step=step)
        self.pretence.log.append(truth)
        self.pretence.count(msgspec.structs.replace(answer, cached_tokens=cached))
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.clock.add(Sending(self.transport, _sends(setup.shape, answer, ttft, step), truth, fault))


def _text_of(content: str | list[dict[str, str]]) -> str:
    """A message's text, which may come in parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def serve(host: str, port: int, setup: Setup, encode: Encode, *, while_held: bool) -> None:
    """Serve until cancelled or, `while_held`, until standard input ends; the address is printed when it is known."""
    pretence = Pretence(setup, encode)
    clock = Clock(pretence)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pretence, clock), host, port)
    address = server.sockets[0].getsockname()
    sys.stdout.write(f"http://{host}:{address[1]}\n")
    sys.stdout.flush()
    if while_held:
        await asyncio.to_thread(sys.stdin.read)
    else:
        await server.serve_forever()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="A server that streams on an exact schedule and logs its sends.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--setup", default="{}", help="JSON of the setup")
    parser.add_argument("--tokenizer", help="a tokenizer.json; a simple one of its own otherwise")
    parser.add_argument(
        "--while-held", action="store_true", help="end with standard input: whoever holds it has gone, however it ended"
    )
    arguments = parser.parse_args()
    setup = msgspec.json.decode(arguments.setup, type=Setup)
    encode = file_encoder(arguments.tokenizer) if arguments.tokenizer else words
    try:
        asyncio.run(serve(arguments.host, arguments.port, setup, encode, while_held=arguments.while_held))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
