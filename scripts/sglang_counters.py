"""Sweep a real SGLang and hold what the sweep says against the engine's own counters.

    python scripts/sglang_counters.py MODEL OUT [--gpu 0] [--seconds 300]

Needs sglang and draftmark in this Python; weights are made up. Two servers, one plain and one that drafts a chain; each
is swept cold, with several requests at once, and warm. OUT/counters.json holds one row for each sweep: tokens, requests
and the sums of times to first token and of times between tokens, ours beside the engine's.
"""

import argparse
import shlex
import time
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from sglang_server import Server

from draftmark.engines.metrics import totals
from draftmark.physics.figures import figures
from draftmark.sample import Point
from draftmark.sweep import Options, sweep
from draftmark.units import Tokens

METRICS: Final = shlex.split("--enable-metrics --enable-cache-report --cuda-graph-max-bs 4")
CHAIN: Final = shlex.split(
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)
SERVERS: Final[dict[str, list[str]]] = {"plain": METRICS, "chain": [*METRICS, *CHAIN]}
DEPTHS: Final = (1024, 4096, 16384, 65536)
SWEEPS: Final = {
    "cold": Options(repeats=3, most_repeats=3, output=Tokens(256)),
    "4 at once": Options(repeats=2, most_repeats=2, output=Tokens(64), concurrency=(4,)),
    "warm": Options(repeats=3, most_repeats=3, output=Tokens(256), mode="warm"),
}
COUNTERS: Final = {
    "prompt_tokens": "sglang:prompt_tokens_total",
    "generated_tokens": "sglang:generation_tokens_total",
    "requests": "sglang:time_to_first_token_seconds_count",
    "first_token_seconds": "sglang:time_to_first_token_seconds_sum",
    "decode_seconds": "sglang:inter_token_latency_seconds_sum",
}


def engine_counters(url: str) -> dict[str, float]:
    """Totals since the server's start, series of one name added up."""
    text = httpx.get(f"{url}/metrics", timeout=10).text
    return dict.fromkeys(COUNTERS, 0.0) | totals(text, {name: quantity for quantity, name in COUNTERS.items()})


def own_counters(points: list[Point]) -> dict[str, float]:
    """The same from the sweep's samples."""
    samples = [sample for point in points for sample in point.samples]
    return {
        "prompt_tokens": sum(sample.prompt_tokens or 0 for sample in samples),
        "generated_tokens": sum(sample.completion_tokens or 0 for sample in samples),
        "requests": len(samples),
        "first_token_seconds": sum(sample.ttft or 0.0 for sample in samples),
        "decode_seconds": sum(sample.decode_time or 0.0 for sample in samples),
    }


def one_sweep(server: Server, name: str, model: str) -> dict[str, Any]:
    """Sweep once and compare."""
    options = msgspec.structs.replace(SWEEPS[name], tokenizer=Path(model))
    before = engine_counters(server.url)
    result = sweep(server.url, DEPTHS, options, sink=lambda _: None)
    time.sleep(1)
    after = engine_counters(server.url)
    return {
        "server": server.name,
        "sweep": name,
        "state": msgspec.to_builtins(msgspec.structs.replace(result.state, observations=())),
        "prompts": "token ids" if result.dialect.token_ids else "text",
        "engine": {quantity: after[quantity] - before[quantity] for quantity in COUNTERS},
        "draftmark": own_counters(list(result.points)),
        "points": [
            {"depth": point.asked, "invalid": point.invalid, "flags": point.flags, **told(point)}
            for point in result.points
        ],
    }


def told(point: Point) -> dict[str, float | None]:
    """The medians that the sweep shows for a point, in seconds and tokens a second."""
    known = figures(point)
    medians = {"ttft": known.ttft, "decode_rate": known.decode_rate, "step": known.step_time, "rate": known.total_rate}
    return {name: None if found is None else found.value for name, found in medians.items()}


def main() -> None:
    """Both servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--seconds", type=float, default=300, help="no sweep begins after these")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = []
    for number, (name, flags) in enumerate(SERVERS.items()):
        server = Server(
            name, arguments.model, arguments.out, gpu=arguments.gpu, port=30500 + number, flags=flags, mode="off"
        )
        try:
            server.wait()
            for kind in SWEEPS:
                if time.monotonic() < until:
                    rows.append(one_sweep(server, kind, arguments.model))
                    print(name, kind, rows[-1]["engine"], rows[-1]["draftmark"], flush=True)
        finally:
            server.stop()
            (arguments.out / "counters.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))


if __name__ == "__main__":
    main()
