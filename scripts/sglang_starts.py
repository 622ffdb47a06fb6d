"""Start the real SGLang over models, fractions, chunks and drafts, and keep what each start said of its memory.

    python scripts/sglang_starts.py OUT [--only NAME ...] [--skip N] [--seconds 560] [--site DIR] [--of GPUS]

Run it on a machine with a GPU where SGLang can be imported (`--site` is put in front of PYTHONPATH). Weights are made
up (`--load-format dummy`), so nothing is downloaded. Starts go one after another, since each sizes its pool from the
memory that is free; with several GPUs, run it once for each (`CUDA_VISIBLE_DEVICES=0 ... --of 2` takes every second).
What is kept: OUT/starts.jsonl, one line a start: flags, /server_info, memory by nvidia-smi before, when ready and
after one prefill of two chunks, and the log without progress bars. Starts that no time is left for are named at the
end; run again with --skip.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from sglang_server import end_group

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
PORT = 30017 + 100 * int(os.environ["CUDA_VISIBLE_DEVICES"])
URL = f"http://127.0.0.1:{PORT}"
ALWAYS = (
    "--load-format", "dummy", "--skip-tokenizer-init", "--skip-server-warmup", "--grammar-backend", "none",
    "--attention-backend", "triton", "--host", "127.0.0.1", "--port", str(PORT),
)  # fmt: skip
PREFILL_SECONDS = 45
LEAST_SECONDS = 75
"""A start takes 45 to 120 s; with less left than this none is begun."""


def write_model(folder: Path, model: dict[str, Any], configs: dict[str, dict[str, Any]]) -> None:
    """A folder with the config.json of one entry of [models]."""
    config = dict(configs[model["base"]])
    if model.get("text_only"):
        config = {**config, **config.pop("text_config")}
        for name in ("text_config", "vision_config"):
            config.pop(name, None)
    if not model.get("keep_quantization"):
        config.pop("quantization_config", None)
    config.pop("auto_map", None)
    layers = model.get("changes", {}).get("num_hidden_layers")
    for name, value in config.items():
        if layers and isinstance(value, list) and len(value) == config["num_hidden_layers"]:
            config[name] = value[:layers]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **model.get("changes", {})}, indent=1))


def used_mib() -> int | None:
    """Memory in use on the GPU, by nvidia-smi."""
    done = subprocess.run(
        [
            "nvidia-smi",
            "-i",
            os.environ["CUDA_VISIBLE_DEVICES"],
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else None


def fetch(path: str, body: object = None, timeout: float = 5) -> Any:
    """JSON of one endpoint, None where it does not answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError, TimeoutError):
        return None
    return json.loads(text) if text.strip() else {}


def wait_ready(process: "subprocess.Popen[bytes]", until: float) -> bool:
    """Whether the server answers before `until`."""
    while time.monotonic() < until and process.poll() is None:
        if fetch("/health") is not None:
            return True
        time.sleep(1)
    return False


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server's process group, which is its own, and wait for the GPU to be free again."""
    end_group(process)
    for _ in range(20):
        used = used_mib()
        if used is None or used < 1500:
            return
        time.sleep(1)


def without_bars(text: str) -> str:
    """The log, each progress bar as it stood last."""
    return "\n".join(line.rsplit("\r", 1)[-1] for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n"))


def prefill(info: Any) -> bool | None:
    """One prompt of two chunks, so that a full chunk's activations are in the memory afterwards."""
    chunk = (info or {}).get("chunked_prefill_size") or 8192
    length = min(2 * max(chunk, 1024), 65_536)
    body = {"input_ids": [7] * length, "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
    return fetch("/generate", body, timeout=PREFILL_SECONDS) is not None


def run(start: dict[str, Any], models: Path, site: str | None, until: float) -> dict[str, Any]:
    """One start, whatever becomes of it."""
    flags = ["--model-path", str(models / start["model"]), *ALWAYS, *start.get("flags", [])]
    if "draft" in start:
        flags += ["--speculative-draft-model-path", str(models / start["draft"])]
    environment = dict(os.environ)
    if site:
        environment["PYTHONPATH"] = f"{site}:{environment.get('PYTHONPATH', '')}"
    environment["PATH"] += ":/usr/local/cuda/bin"
    row: dict[str, Any] = {**start, "flags_given": flags, "used_before_mib": used_mib()}
    began = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            row["ready"] = wait_ready(process, until)
            row["seconds"] = round(time.monotonic() - began, 1)
            row["used_ready_mib"] = used_mib()
            if row["ready"]:
                row["server_info"] = fetch("/server_info") or fetch("/get_server_info")
                row["prefilled"] = prefill(row["server_info"])
                row["used_after_prefill_mib"] = used_mib()
            row["exit_code"] = process.poll()
        finally:
            stop(process)
        row["log"] = without_bars(Path(log.name).read_text(errors="replace"))[-400_000:]
    return row


def main() -> int:
    """Run the starts that time allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--site")
    parser.add_argument(
        "--of", type=int, default=1, help="GPUs that share the starts; this one is $CUDA_VISIBLE_DEVICES"
    )
    options = parser.parse_args()
    limit = time.monotonic() + options.seconds
    plan = tomllib.loads((DATA / "sglang-starts" / "starts.toml").read_text())
    lines = (DATA / "models" / "configs.jsonl").read_text().splitlines()
    configs = {row["name"]: row["config"] for row in map(json.loads, lines)}
    wanted = [start for start in plan["start"] if not options.only or start["name"] in options.only][options.skip :]
    wanted = wanted[int(os.environ["CUDA_VISIBLE_DEVICES"]) % options.of :: options.of]
    options.out.mkdir(parents=True, exist_ok=True)
    left = []
    with tempfile.TemporaryDirectory() as folder, (options.out / "starts.jsonl").open("a") as kept:
        for name, model in plan["models"].items():
            write_model(Path(folder) / name, model, configs)
        for start in wanted:
            if time.monotonic() + LEAST_SECONDS > limit:
                left.append(start["name"])
                continue
            row = run(start, Path(folder), options.site, min(limit - 20, time.monotonic() + 200))
            kept.write(json.dumps(row) + "\n")
            kept.flush()
            said = re.findall(r"max_total_num_tokens=\d+", row["log"])
            print(f"{row['name']}: ready={row['ready']} {row['seconds']} s {said[-1] if said else ''}", flush=True)
    print(f"not run: {' '.join(left) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
