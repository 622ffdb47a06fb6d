"""The ground-truth server as a child process, so that it and the client do not share an interpreter."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import httpx
import msgspec

from draftmark.selftest.model import Setup
from draftmark.selftest.pretence import Truth


class GroundTruth:
    """A running ground-truth server."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.url = process, url
        self._http = httpx.Client(timeout=10.0)

    def control(self, setup: Setup) -> None:
        """Behave like this from the next request on."""
        self._http.post(f"{self.url}/control", content=msgspec.json.encode(setup)).raise_for_status()

    def truth(self) -> tuple[Truth, ...]:
        """The requests since the last call, as the server saw them."""
        reply = self._http.get(f"{self.url}/truth").raise_for_status()
        return tuple(msgspec.json.decode(reply.content, type=list[Truth]))

    def restart(self) -> None:
        """Look like another process from now on: the counters begin anew."""
        self._http.post(f"{self.url}/forget").raise_for_status()

    def close(self) -> None:
        """End the process."""
        self._http.close()
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def ground_truth(setup: Setup, *, tokenizer: str | None = None) -> Iterator[GroundTruth]:
    """A ground-truth server on a free port, for as long as the block lasts, and this process."""
    command = [sys.executable, "-m", "draftmark.selftest.server", "--while-held"]
    command += ["--setup", msgspec.json.encode(setup).decode()]
    if tokenizer is not None:
        command += ["--tokenizer", tokenizer]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server = GroundTruth(process, process.stdout.readline().strip())
    try:
        yield server
    finally:
        server.close()
