"""Sweep a real SGLang and hold what the sweep says against the engine's own counters and its log.

    python scripts/sglang_counters.py MODEL OUT [--gpu 0] [--seconds 300]

Needs sglang and draftmark in this Python; weights are made up. Two servers, one plain and one that drafts a chain; each
is swept cold, with several requests at once, and warm. OUT/counters.json holds one row for each sweep and, where the
log says it, each point: tokens, mean time to first token and decode speed, ours beside the engine's.
"""

import argparse
import re
import shlex
import statistics
import time
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from sglang_server import Server

from draftmark.sample import Point
from draftmark.sweep import Options, sweep
from draftmark.units import Tokens

METRICS: Final = shlex.split("--enable-metrics --enable-cache-report --decode-log-interval 10 --cuda-graph-max-bs 4")
CHAIN: Final = shlex.split(
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)
SERVERS: Final[dict[str, list[str]]] = {"plain": METRICS, "chain": [*METRICS, *CHAIN]}
DEPTHS: Final = (1024, 4096, 16384, 65536)
OUTPUT: Final = 128
SWEEPS: Final = {
    "cold": Options(repeats=3, most_repeats=3, output=Tokens(OUTPUT)),
    "4 at once": Options(repeats=2, most_repeats=2, output=Tokens(OUTPUT), concurrency=(4,)),
    "warm": Options(repeats=3, most_repeats=3, output=Tokens(OUTPUT), mode="warm"),
}
COUNTERS: Final = {
    "prompt_tokens": "sglang:prompt_tokens_total",
    "generated_tokens": "sglang:generation_tokens_total",
    "requests": "sglang:time_to_first_token_seconds_count",
    "first_token_seconds": "sglang:time_to_first_token_seconds_sum",
}
DECODE: Final = re.compile(r"Decode batch.*#running-req: (\d+), .*?#token: (\d+).*gen throughput \(token/s\): ([\d.]+)")


def engine_counters(url: str) -> dict[str, float]:
    """Totals since the server's start, series of one name added up."""
    wanted = {name: quantity for quantity, name in COUNTERS.items()}
    totals = dict.fromkeys(COUNTERS, 0.0)
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10).text):
        for sample in family.samples:
            if sample.name in wanted:
                totals[wanted[sample.name]] += sample.value
    return totals


def own_counters(points: list[Point]) -> dict[str, float]:
    """The same from the sweep's samples."""
    samples = [sample for point in points for sample in point.samples]
    return {
        "prompt_tokens": sum(sample.prompt_tokens or 0 for sample in samples),
        "generated_tokens": sum(sample.completion_tokens or 0 for sample in samples),
        "requests": len(samples),
        "first_token_seconds": sum(sample.ttft or 0.0 for sample in samples),
    }


def logged_rate(lines: list[str], depth: int, at_once: int) -> float | None:
    """Median tokens a second of the decode lines at one depth; the first of a request, which its prefill is in, left
    out by taking those in the upper half of its output."""
    rates = []
    for line in lines:
        if found := DECODE.search(line):
            running, held, rate = int(found[1]), int(found[2]), float(found[3])
            if running == at_once and depth + OUTPUT // 2 <= held / at_once <= depth + OUTPUT + 8:
                rates.append(rate)
    return statistics.median(rates) if rates else None


def one_sweep(server: Server, name: str) -> dict[str, Any]:
    """Sweep once and compare."""
    before, seen = engine_counters(server.url), len(server.lines())
    result = sweep(server.url, DEPTHS, SWEEPS[name], sink=lambda _: None)
    time.sleep(1)
    after, lines = engine_counters(server.url), server.lines()[seen:]
    points = [
        {
            "depth": point.asked,
            "invalid": point.invalid,
            "flags": point.flags,
            "decode_tokens_per_second": statistics.median(s.decode_rate or 0.0 for s in point.measured),
            "logged_tokens_per_second": logged_rate(lines, point.asked, point.concurrency),
        }
        for point in result.points
    ]
    engine = {quantity: after[quantity] - before[quantity] for quantity in COUNTERS}
    state = msgspec.to_builtins(result.state)
    return {"server": server.name, "sweep": name, "state": state, "engine": engine,
            "draftmark": own_counters(list(result.points)), "points": points}  # fmt: skip


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
                    rows.append(one_sweep(server, kind))
                    print(name, kind, rows[-1]["engine"], rows[-1]["draftmark"], flush=True)
        finally:
            server.stop()
            (arguments.out / "counters.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))


if __name__ == "__main__":
    main()
