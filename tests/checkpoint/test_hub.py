"""The Hugging Face Hub as it answers, played by a local server."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.zoo import rows

pytestmark = pytest.mark.slow
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = """
import sys
from draftmark.checkpoint.load import load_model
from draftmark.errors import BadInput
try:
    model = load_model("owner/name")
    print(model.revision, model.exact_weights, len(model.layers))
except BadInput as error:
    print(error)
"""


@contextmanager
def hub(
    files: dict[str, bytes], served: list[tuple[str, str]], *, code: int = 404, reason: str = "EntryNotFound"
) -> Iterator[str]:
    """A server that has `files` of one repository and refuses everything else as the Hub words it.

    `served` takes the names of files that were asked for, with the ranges.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self, *, body: bool) -> None:
            content = files.get(self.path.rsplit("/", 1)[-1])
            if content is None:
                self.send_response(code)
                self.send_header("X-Error-Code", reason)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            asked = self.headers.get("Range", "")
            served.append((self.path.rsplit("/", 1)[-1], asked))
            if asked.startswith("bytes="):
                first, last = asked.removeprefix("bytes=").split("-")
                content = content[int(first) : int(last) + 1]
            self.send_response(206 if asked else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def log_message(self, *parts: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def load(url: str, home: Path) -> str:
    """What loading owner/name says; a process of its own, because the Hub's client reads its address when imported."""
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (401, "GatedRepo", "the repository is gated"),
        (401, "RepoNotFound", "no such repository"),
        (404, "RevisionNotFound", "no revision"),
        (404, "EntryNotFound", "no config.json"),
    ],
)
def test_refusals_are_told_apart(tmp_path: Path, code: int, reason: str, message: str) -> None:
    with hub({}, [], code=code, reason=reason) as url:
        assert message in load(url, tmp_path)


def test_a_hub_that_is_not_there_is_given_up_soon_and_quietly(tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "draftmark", "plan", "no/such-model", "--gpu", "h200"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert time.monotonic() - began < 12, "a loaded machine; the Hub's own client alone retries for longer"
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot be reached" in line
    assert "pass that file" in line


@pytest.mark.slow
def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        began = time.monotonic()
        said = load(f"http://127.0.0.1:{deaf.getsockname()[1]}", tmp_path)
    assert "cannot be reached" in said
    assert time.monotonic() - began < 12


def test_a_repository_without_tensor_files_is_worked_out_from_its_config(tmp_path: Path) -> None:
    config = json.dumps(rows()["Qwen/Qwen3-0.6B"]["config"]).encode()
    with hub({"config.json": config}, []) as url:
        assert load(url, tmp_path) == f"{COMMIT} False 28"


def test_headers_are_read_by_range_and_kept(tmp_path: Path) -> None:
    config = json.dumps(rows()["Qwen/Qwen3-0.6B"]["config"]).encode()
    header = json.dumps(
        {
            "model.embed_tokens.weight": {"dtype": "BF16", "shape": [151936, 1024], "data_offsets": [0, 311164928]},
            "model.layers.0.mlp.up_proj.weight": {
                "dtype": "BF16",
                "shape": [3072, 1024],
                "data_offsets": [311164928, 317456384],
            },
        }
    ).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(1 << 20)
    served: list[tuple[str, str]] = []
    with hub({"config.json": config, "model.safetensors": weights}, served) as url:
        assert load(url, tmp_path) == f"{COMMIT} True 28"
        asked = [ranged for name, ranged in served if name == "model.safetensors" and ranged]
        assert asked == ["bytes=0-100000"]
        served.clear()
        assert load(url, tmp_path) == f"{COMMIT} True 28"
        assert [ranged for name, ranged in served if name == "model.safetensors" and ranged] == []
    assert load("http://127.0.0.1:9", tmp_path) == f"{COMMIT} True 28"
