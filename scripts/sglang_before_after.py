"""Measure a real SGLang with and without the plug-in, and compare both kernels inside it; results go to one folder.

    python scripts/sglang_before_after.py MODEL OUT [--gpus 0,1] [--modes off on shadow]

Needs sglang and draftmark (with its entry points) in this Python; weights are made up. Three servers: `off` on the
first GPU, `on` and, when that has ended, `shadow` on the last. `on` and then `off` are swept with `draftmark sweep`,
never both at once, since steps of a few milliseconds are bound by the host; ragged batches go to `shadow`.
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
TOKENS: Final = {"off": 32, "on": 512}
"""Output of one request: a step of the one at 131k takes 50 times as long as one of the other."""
PORTS: Final = {"off": 30100, "on": 30200, "shadow": 30300}
BATCHES: Final = ((700, 3000, 9000, 20000), (150, 150, 5000, 40), (60000,), (17, 1200, 1201))


def sweep(server: Server, model: str, out: Path) -> None:
    """`draftmark sweep` on one server; all runs are in one store."""
    argv = [sys.executable, "-c", "from draftmark.cli.main import main; main()", "sweep", "--url", server.url]
    argv += ["--depths", DEPTHS, "--output", str(TOKENS[server.name]), "--repeats", "3", "--max-repeats", "9"]
    argv += ["--warm-up", "2", "--point-time", "75", "--store", str(out / "runs.db")]
    argv += ["--log", str(server.log), "--tokenizer", model]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    (out / f"sweep-{server.name}.txt").write_text(done.stdout + done.stderr)
    print(server.name, done.stdout, done.stderr[-600:], flush=True)
    if done.returncode:
        raise RuntimeError(f"its sweep ended with {done.returncode}")


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


def start(mode: str, model: str, out: Path, gpu: str) -> Server:
    """The server of one mode."""
    flags = [*SPECULATION, "--cuda-graph-max-bs", str(LARGEST_BATCH[mode])]
    return Server(mode, model, out, gpu=gpu, port=PORTS[mode], flags=flags, mode=mode)


def use(server: Server, model: str, out: Path, texts: dict[str, list[int]]) -> bool:
    """Measure or compare with one server, and end it; whether that went through."""
    done = False
    try:
        server.wait()
        if server.name == "shadow":
            ragged(server)
        else:
            texts[server.name] = server.generate(prompt_of(3000, 5), 32)
            sweep(server, model, out)
        done = True
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as reason:
        print(f"{server.name}: {reason}", flush=True)
    finally:
        server.stop()
    told = ("draftmark.sglang", "left to SGLang", "verify kernel", "Traceback")
    lines = [line for line in server.lines() if any(word in line for word in told)]
    print(f"{server.name}: stopped", *lines[:12], sep="\n", flush=True)
    return done


def main() -> int:
    """Start, sweep, compare, stop; 1 where a server failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder with config.json and tokenizer")
    parser.add_argument("out", type=Path, help="folder for runs.db, logs and what was printed")
    parser.add_argument("--gpus", default="0,1", help="the first is for `off`, the last for `on` and `shadow`")
    parser.add_argument("--modes", nargs="*", default=["off", "on", "shadow"], choices=["off", "on", "shadow"])
    arguments = parser.parse_args()
    gpus, model, out = arguments.gpus.split(","), arguments.model, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", "import draftmark.store, draftmark.sweep"], check=True)
    texts: dict[str, list[int]] = {}
    places = {"on": gpus[-1], "off": gpus[0]}
    measured = [start(mode, model, out, gpu) for mode, gpu in places.items() if mode in arguments.modes]
    try:
        done = [use(server, model, out, texts) for server in measured]
    finally:
        for server in measured:
            server.stop()
    if "shadow" in arguments.modes:
        done.append(use(start("shadow", model, out, gpus[-1]), model, out, texts))
    if len(texts) > 1:
        print("greedy text of off and on is the same:", texts["off"] == texts["on"], flush=True)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
