"""A real SGLang with made-up weights, for the scripts that measure it: start it, ask it, end it."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

COMMON: Final = shlex.split(
    "--load-format dummy --host 127.0.0.1 --grammar-backend none --attention-backend triton "
    "--mem-fraction-static 0.7 --max-total-tokens 400000"
)
START_SECONDS: Final = 280
LEAST_SECONDS: Final = 30
"""One that was started long ago still has these to answer."""


class Server:
    """One SGLang on one GPU, in its own process group; its log is OUT/server-NAME.log."""

    def __init__(
        self, name: str, model: str, out: Path, *, gpu: str, port: int, flags: Sequence[str], mode: str
    ) -> None:
        self.name, self.url, self.log = name, f"http://127.0.0.1:{port}", out / f"server-{name}.log"
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--port", str(port)]
        environment = os.environ | {"DRAFTMARK_SGLANG": mode, "CUDA_VISIBLE_DEVICES": gpu}
        self._began = time.monotonic()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*argv, *COMMON, *flags], stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def wait(self) -> None:
        """Until it answers.

        Raises:
            RuntimeError: it died or took too long; the message ends with the last lines of its log.
        """
        until = max(self._began + START_SECONDS, time.monotonic() + LEAST_SECONDS)
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    print(f"{self.name}: up after {time.monotonic() - self._began:.0f} s", flush=True)
                    return
            except OSError:
                time.sleep(1)
        raise RuntimeError(f"{self.name} did not start:\n" + "\n".join(self.lines()[-25:]))

    def generate(self, prompt: list[int], tokens: int) -> list[int]:
        """Greedy output for a prompt of token ids."""
        parameters = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body = json.dumps({"input_ids": prompt, "sampling_params": parameters}).encode()
        request = urllib.request.Request(f"{self.url}/generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return list(json.load(answer)["output_ids"])

    def lines(self) -> list[str]:
        """The log so far."""
        return self.log.read_text(errors="replace").splitlines()

    def stop(self) -> None:
        """End it and its children."""
        end_group(self._process)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process group by its leader: children may outlive that one, so the group is signalled in any case."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=8)


def prompt_of(length: int, seed: int) -> list[int]:
    """Token ids without meaning, the same for the same seed."""
    return [3 + (seed * 7919 + position * position * 31 + position * 17) % 4000 for position in range(length)]
