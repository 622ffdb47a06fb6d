"""Measure a real SGLang with and without the plug-in, and compare both kernels inside it; results go to one folder.

    python scripts/sglang_before_after.py MODEL OUT [--gpus 0,1]

Needs sglang and draftmark (with its entry points) in this Python, and weights or `--load-format dummy` made-up ones,
which is what it uses. Starts three servers at once: `off` on the first GPU, `on` and `shadow` on the last; sweeps the
first two with `draftmark sweep`, then sends ragged batches to the third. With two GPUs the sweeps do not disturb each
other.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

DEPTHS = "1024,8192,32768,131072"
FLAGS = shlex.split(
    "--load-format dummy --host 127.0.0.1 --grammar-backend none --attention-backend triton "
    "--speculative-algorithm EAGLE --speculative-num-steps 4 --speculative-eagle-topk 4 "
    "--speculative-num-draft-tokens 16 --disable-radix-cache --mem-fraction-static 0.7 --max-total-tokens 400000"
)
MODES = {"off": 1, "on": 1, "shadow": 4}
"""Value of DRAFTMARK_SGLANG, and the largest batch that is captured in graphs."""
BATCHES = ((700, 3000, 9000, 20000), (150, 150, 5000, 40), (60000,), (17, 1200, 1201))
START_SECONDS = 280


class Server:
    """One SGLang, started in its own process group."""

    def __init__(self, model: str, out: Path, mode: str, gpu: str, port: int) -> None:
        self.url, self.mode, self.log = f"http://127.0.0.1:{port}", mode, out / f"server-{mode}.log"
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--port", str(port), *FLAGS]
        environment = os.environ | {"DRAFTMARK_SGLANG": mode, "CUDA_VISIBLE_DEVICES": gpu}
        argv += ["--cuda-graph-max-bs", str(MODES[mode])]
        self.process = subprocess.Popen(
            argv, stdout=self.log.open("w"), stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(1)
        raise SystemExit(f"{self.mode} did not start:\n" + "".join(self.log.open().readlines()[-25:]))

    def generate(self, prompt: list[int], tokens: int) -> list[int]:
        """Greedy output for a prompt of token ids."""
        parameters = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body = json.dumps({"input_ids": prompt, "sampling_params": parameters}).encode()
        request = urllib.request.Request(f"{self.url}/generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return list(json.load(answer)["output_ids"])

    def stop(self) -> None:
        """End it and its children."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, how)
                try:
                    self.process.wait(timeout=8)
                except subprocess.TimeoutExpired:
                    continue


def prompt_of(length: int, seed: int) -> list[int]:
    """Token ids without meaning, the same for the same seed."""
    return [3 + (seed * 7919 + position * position * 31 + position * 17) % 4000 for position in range(length)]


def sweep(server: Server, out: Path, repeats: int) -> None:
    """`draftmark sweep` on one server."""
    argv = [sys.executable, "-c", "from draftmark.cli.main import main; main()", "sweep", "--url", server.url]
    argv += ["--depths", DEPTHS, "--output", "48", "--repeats", str(repeats), "--max-repeats", str(repeats)]
    argv += ["--store", str(out / f"{server.mode}.db"), "--warm-up", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, check=False)
    (out / f"sweep-{server.mode}.txt").write_text(done.stdout + done.stderr)
    print(server.mode, done.stdout, done.stderr[-600:], flush=True)


def ragged(server: Server) -> None:
    """Batches of unlike lengths, several at once, then one more prompt, at whose prefill the counts are logged."""
    for number, batch in enumerate(BATCHES):
        threads = [
            threading.Thread(target=server.generate, args=(prompt_of(length, number * 10 + place), 40))
            for place, length in enumerate(batch)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    time.sleep(1.5)
    server.generate(prompt_of(300, 99), 2)
    lines = [line for line in server.log.read_text().splitlines() if "shadow:" in line or "left to SGLang" in line]
    print("shadow", *lines[-6:], sep="\n", flush=True)


def main() -> None:
    """Start, sweep, compare, stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", default="0,1")
    arguments = parser.parse_args()
    gpus, out = arguments.gpus.split(","), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    places = {"off": gpus[0], "on": gpus[-1], "shadow": gpus[-1]}
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import draftmark.store, draftmark.sweep"], check=True)
    servers = {
        mode: Server(arguments.model, out, mode, gpu, 30100 + 100 * number)
        for number, (mode, gpu) in enumerate(places.items())
    }
    texts: dict[str, list[int]] = {}

    def run(mode: str, repeats: int) -> None:
        servers[mode].wait()
        print(f"{mode} up after {time.monotonic() - started:.0f} s", flush=True)
        texts[mode] = servers[mode].generate(prompt_of(3000, 5), 32)
        sweep(servers[mode], out, repeats)

    try:
        slow = threading.Thread(target=run, args=("off", 1))
        slow.start()
        run("on", 1)
        servers["shadow"].wait()
        ragged(servers["shadow"])
        slow.join()
        print("greedy text of off and on is the same:", texts.get("off") == texts.get("on"), flush=True)
    finally:
        for server in servers.values():
            server.stop()
        told = ("draftmark.sglang", "left to SGLang", "verify kernel", "Traceback")
        for server in servers.values():
            lines = [line for line in server.log.read_text().splitlines() if any(word in line for word in told)]
            print(server.mode, *lines[:12], sep="\n", flush=True)


if __name__ == "__main__":
    main()
