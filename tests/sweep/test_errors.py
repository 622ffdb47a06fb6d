"""What is wrong is said in one line with cause, place and remedy."""

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftmark.errors import BadInput, DraftmarkError, EngineFailed
from draftmark.sample import Point
from draftmark.selftest.model import Fault, Setup
from draftmark.selftest.process import GroundTruth
from draftmark.sweep import Options, sweep
from draftmark.units import Tokens

from .conftest import FAST
from .hostile import MODELS, hostile

QUICK = Options(warm_up=0, repeats=1, most_repeats=1, output=Tokens(4))


def nothing(point: Point) -> None:
    pass


def message(server_url: str, options: Options = QUICK) -> str:
    with pytest.raises(DraftmarkError) as problem:
        sweep(server_url, (100,), options, sink=nothing)
    text = str(problem.value)
    assert "\n" not in text
    assert problem.value.place
    assert problem.value.remedy
    return text


def test_a_key_is_wanted_and_used(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, api_key="sesame"))
    assert "wants a key (401); give --api-key" in message(server.url)
    assert "wants a key" in message(server.url, msgspec.structs.replace(QUICK, api_key="wrong"))
    with_key = msgspec.structs.replace(QUICK, api_key="sesame")
    assert sweep(server.url, (100,), with_key, sink=nothing).points[0].invalid is None


def test_https_asked_of_a_plain_server(server: GroundTruth) -> None:
    assert "is it http and not https?" in message(server.url.replace("http:", "https:"))


def test_a_server_that_fails_on_a_few_tokens(server: GroundTruth) -> None:
    server.control(Setup(pace=FAST, fault=Fault(kind="refuse")))
    with pytest.raises(EngineFailed, match="500"):
        sweep(server.url, (100,), QUICK, sink=nothing)


@pytest.mark.parametrize("tokenize", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_a_chat_only_server_is_found_out(server: GroundTruth, tokenize: bool, strict: bool) -> None:
    server.control(Setup(pace=FAST, completions=False, tokenize=tokenize, strict=strict))
    result = sweep(server.url, (100, 900), QUICK, sink=nothing)
    assert result.dialect.route == "/v1/chat/completions"
    assert [point.invalid for point in result.points] == [None, None]
    assert [sample.prompt_tokens for point in result.points for sample in point.measured] == [100, 900]
    asked = msgspec.structs.replace(QUICK, api="completions")
    assert "no such route" in message(server.url, asked)


def test_a_text_that_is_too_short(server: GroundTruth, tmp_path: Path) -> None:
    file = tmp_path / "short.txt"
    file.write_text("Not much.\n" * 5)
    said = message(server.url, msgspec.structs.replace(QUICK, texts=(file,)))
    assert "short.txt: 50 characters are too short" in said
    file.write_bytes(b"\xff\xfe\xff")
    assert "cannot be read as text" in message(server.url, msgspec.structs.replace(QUICK, texts=(file,)))


def test_a_tokenizer_that_is_none(server: GroundTruth, tmp_path: Path) -> None:
    said = message(server.url, msgspec.structs.replace(QUICK, tokenizer=tmp_path))
    assert "no tokenizer can be read" in said


@pytest.fixture
def website() -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_answers_is_something_else(website: str) -> None:
    with pytest.raises(BadInput, match="not an OpenAI-compatible server"):
        sweep(website, (100,), QUICK, sink=nothing)


STATUSES = {
    301: (BadInput, "answers 301 and points to https://elsewhere/v1; give that address with --url"),
    308: (BadInput, "answers 308 and points to https://elsewhere/v1; give that address with --url"),
    400: (BadInput, "answers 400 (not now)"),
    401: (BadInput, "wants a key (401)"),
    403: (BadInput, "wants a key (403)"),
    408: (EngineFailed, "answers 408 (not now): not now"),
    429: (EngineFailed, "answers 429 (not now): not now"),
    500: (EngineFailed, "answers 500 (not now)"),
    503: (EngineFailed, "answers 503 (not now); is it still loading? see its log"),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("route", ["/v1/models", "/v1/completions"])
def test_a_status_is_told_with_the_servers_words(route: str, status: int) -> None:
    kind, words = STATUSES[status]
    body = b'{"error": {"message": "not now"}}'
    codes = {"models_status": status} if route == "/v1/models" else {"status": status}
    models = MODELS if route == "/v1/completions" else body
    with (
        hostile(
            lambda _: iter([body]), models=lambda _: iter([models]), location="https://elsewhere/v1", **codes
        ) as url,
        pytest.raises(kind) as problem,
    ):
        sweep(url, (100,), msgspec.structs.replace(QUICK, api="completions"), sink=nothing)
    assert words in str(problem.value)
    assert route in problem.value.place


@pytest.mark.parametrize("body", [b'{"choices": [{"text": "a b"}]}', b"<html>log in</html>"])
def test_what_is_no_stream_is_shown(body: bytes) -> None:
    with hostile(lambda _: iter([body])) as url, pytest.raises(EngineFailed) as problem:
        sweep(url, (100,), QUICK, sink=nothing)
    assert f"streamed no output; it sent: {body.decode()}" in str(problem.value)


@pytest.mark.parametrize(("status", "refused"), [(400, True), (404, True), (422, True), (408, False), (429, False)])
def test_a_request_to_come_back_later_is_no_refusal(server: GroundTruth, status: int, refused: bool) -> None:
    result = sweep(server.url, (100,), QUICK, sink=nothing)
    assert msgspec.structs.replace(result, stopped=f"{status}: too many").refused is refused


def test_what_answers_no_http_may_want_https() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.recv(1)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        said = message(url)
        thread.join()
    assert "is it https and not http" in said
