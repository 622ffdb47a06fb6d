"""Measure a real SGLang with and without the plug-in, and compare both kernels inside it; results go to one folder.

    python scripts/sglang_before_after.py MODEL OUT [--gpus 0,1]

Needs sglang and draftmark (with its entry points) in this Python; weights are made up. Three servers: `off` on the
first GPU, `on` and then `shadow` on the last, so that with two GPUs nothing shares one with a server that is measured;
on one GPU they run one after another. `off` and `on` are swept with `draftmark sweep`, ragged batches go to `shadow`.
"""

import argparse
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from sglang_server import Server, prompt_of

DEPTHS: Final = "1024,8192,32768,131072"
SPECULATION: Final = shlex.split(
    "--disable-radix-cache --speculative-algorithm EAGLE --speculative-num-steps 4 --speculative-eagle-topk 4 "
    "--speculative-num-draft-tokens 16"
)
LARGEST_BATCH: Final = {"off": 1, "on": 1, "shadow": 4}
"""Largest batch that is captured in graphs, by value of DRAFTMARK_SGLANG."""
TOKENS: Final = {"off": 32, "on": 128}
"""Output of one request: a step of the one at 131k takes 50 times as long as one of the other."""
PORTS: Final = {"off": 30100, "on": 30200, "shadow": 30300}
BATCHES: Final = ((700, 3000, 9000, 20000), (150, 150, 5000, 40), (60000,), (17, 1200, 1201))


def sweep(server: Server, model: str, out: Path) -> None:
    """`draftmark sweep` on one server, with a run in a store of its own."""
    argv = [sys.executable, "-c", "from draftmark.cli.main import main; main()", "sweep", "--url", server.url]
    argv += ["--depths", DEPTHS, "--output", str(TOKENS[server.name]), "--repeats", "3", "--max-repeats", "5"]
    argv += ["--store", str(out / f"{server.name}.db"), "--warm-up", "2", "--log", str(server.log)]
    argv += ["--tokenizer", model]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    (out / f"sweep-{server.name}.txt").write_text(done.stdout + done.stderr)
    print(server.name, done.stdout, done.stderr[-600:], flush=True)


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
    print("shadow", *[line for line in server.lines() if "shadow:" in line][-6:], sep="\n", flush=True)


def run(modes: list[str], gpu: str, model: str, out: Path, texts: dict[str, list[int]]) -> None:
    """The servers of one GPU, one after another."""
    for mode in modes:
        flags = [*SPECULATION, "--cuda-graph-max-bs", str(LARGEST_BATCH[mode])]
        server = Server(mode, model, out, gpu=gpu, port=PORTS[mode], flags=flags, mode=mode)
        try:
            server.wait()
            if mode == "shadow":
                ragged(server)
            else:
                texts[mode] = server.generate(prompt_of(3000, 5), 32)
                sweep(server, model, out)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as reason:
            print(f"{mode}: {reason}", flush=True)
        finally:
            server.stop()
        told = ("draftmark.sglang", "left to SGLang", "verify kernel", "Traceback")
        print(mode, *[line for line in server.lines() if any(word in line for word in told)][:12], sep="\n", flush=True)


def main() -> None:
    """Start, sweep, compare, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--modes", nargs="*", default=["off", "on", "shadow"], choices=["off", "on", "shadow"])
    arguments = parser.parse_args()
    gpus, out = arguments.gpus.split(","), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", "import draftmark.store, draftmark.sweep"], check=True)
    texts: dict[str, list[int]] = {}
    first, rest = ([mode for mode in arguments.modes if (mode == "off") is it] for it in (True, False))
    slow = threading.Thread(target=run, args=(first, gpus[0], arguments.model, out, texts))
    slow.start()
    if len(gpus) == 1:
        slow.join()
    run(rest, gpus[-1], arguments.model, out, texts)
    slow.join()
    print("greedy text of off and on is the same:", len(texts) == 2 and texts["off"] == texts["on"], flush=True)


if __name__ == "__main__":
    main()
