"""Servers that answer what they like: one function from a request's path to the bytes of the answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

Answer = Callable[[str], Iterator[bytes]]
"""From the path to pieces of the body, written as they come; nothing: 404."""
MODELS = b'{"data": [{"id": "m", "max_model_len": 4096}]}'


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def token(done: int, *, prompt: int = 9, **fields: object) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": done}
    return event(choices=[{"index": 0, "text": " tide"}], usage=usage, **fields)


@contextmanager
def hostile(
    generate: Answer,
    *,
    models: Answer = lambda _: iter([MODELS]),
    status: int = 200,
    models_status: int = 200,
    location: str | None = None,
) -> Iterator[str]:
    """A server whose completions are those of `generate`, with `status`; `location` is sent with each redirection."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(models(self.path) if self.path == "/v1/models" else None, models_status)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(generate(self.path) if self.path == "/v1/completions" else None, status)

        def _send(self, pieces: Iterator[bytes] | None, code: int = 200) -> None:
            self.send_response(404 if pieces is None else code)
            if location is not None and 300 <= code < 400:
                self.send_header("Location", location)
            self.end_headers()
            try:
                for piece in pieces or ():
                    if ended.is_set():
                        return
                    self.wfile.write(piece)
                    self.wfile.flush()
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            pass

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
