"""The server as a process of its own, as users start it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

DEADLINE = 120.0


class Running(msgspec.Struct):
    """A server process, its URL and the file that its log goes to."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Exit code after a signal."""
        self.process.send_signal(how)
        return self.process.wait(DEADLINE)


def start(log: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """The engine with warnings as errors, writing to `log`."""
    argv = [sys.executable, "-W", "error", "-m", "draftmark.embedded", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}  # one thread: others wait for cores
    with log.open("wb") as file:
        return subprocess.Popen(argv, stdout=file, stderr=file, env=environment)


@contextmanager
def server(log: Path, *arguments: str) -> Iterator[Running]:
    """A server that is ready, on a port of its own choice; ended afterwards if it still runs."""
    process = start(log, "--port", "0", *arguments)
    try:
        yield Running(process, _url(process, log), log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(DEADLINE)


def _url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        text = log.read_text()
        if "phase=ready" in text:
            url = text.rpartition(" url=")[2].split()[0]
            while httpx.get(f"{url}/health").status_code != httpx.codes.OK:
                time.sleep(0.01)
            return url
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def finished(log: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and log of an engine that ends by itself."""
    process = start(log, *arguments)
    try:
        return process.wait(DEADLINE), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
