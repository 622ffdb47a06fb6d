"""Whole logs: real ones, and what terminals, restarts and broken disks do to a log."""

import json
import time
import tracemalloc
from pathlib import Path

import pytest

from draftmark.diagnose import diagnose
from tests.diagnose.logs import AFTER_WEIGHTS, SCENARIO, SERVING, codes, lines_of, of

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    ("name", "code", "confidence"),
    [
        ("logs/vllm-0.32.0-cpu/pool-oom.log", "pool-oom", "certain"),
        ("logs/vllm-0.32.0-cpu/serve-oom.log", "logits-oom", "certain"),
        ("logs/vllm-0.32.0-cpu/killed.log", "killed", "possible"),
        ("embedded/oom-pool.log", "pool-oom", "certain"),
        ("embedded/oom-prefill.log", "prefill-oom", "certain"),
    ],
)
def test_real_logs(name: str, code: str, confidence: str) -> None:
    found = of((DATA / name).read_bytes())
    assert (found.findings[0].code, found.findings[0].confidence) == (code, confidence)
    assert found.engine == name.split("/")[-2].split("-")[0]


def test_a_good_log_has_no_findings() -> None:
    assert of((DATA / "embedded" / "ready.log").read_bytes()).findings == ()


STARTS = {
    row["name"]: row for row in map(json.loads, (DATA / "sglang-starts" / "starts.jsonl").read_text().splitlines())
}


MEANT_TO_FAIL: dict[str, tuple[set[str], str]] = {
    "fails-prefill-activations": ({"prefill-oom"}, "lower"),
    "fails-prefill-tight": ({"prefill-oom"}, "lower"),
    "fails-graphs-tight": ({"graph-oom"}, "lower"),
    "fails-fraction-too-high": ({"pool-oom", "graph-oom", "warm-up-oom", "prefill-oom"}, "lower"),
    "fails-fraction-below-weights": ({"no-room-for-pool"}, "raise"),
}
"""By name: what it may be called, and where the fraction has to move."""


CUT_SHORT = {"qwen3-next-24-layers"}
"""Ended while graphs were still being captured, because time was up."""


@pytest.mark.parametrize("name", sorted(STARTS))
def test_real_starts_of_sglang(name: str) -> None:
    row = STARTS[name]
    log = row["log"] if isinstance(row["log"], str) else "\n".join(row["log"])
    found = of(log)
    if name in MEANT_TO_FAIL and found.findings:
        expected, direction = MEANT_TO_FAIL[name]
        first = found.findings[0]
        assert first.code in expected
        assert first.confidence == "certain"
        moved = [change for remedy in first.remedies for change in remedy.changes if "fraction" in change.flag]
        assert [change.direction for change in moved] == [direction]
    elif row["ready"]:
        said = {"health-check-failed"} if "Health check failed" in log else set()
        assert set(codes(found)) == said
    elif name in CUT_SHORT:
        assert codes(found) == ["silent-work"]
    else:
        assert codes(found) == ["unknown"], "an engine's own assertion is not put down to memory"


def test_graphs_of_prefill_steps_are_made_smaller_by_their_own_flag() -> None:
    remedy = of(STARTS["fails-graphs-tight"]["log"]).findings[0].remedies[0]
    assert [(change.flag, change.value) for change in remedy.changes] == [("--cuda-graph-max-bs-prefill", "4096")]


def test_the_provoked_out_of_memory_is_among_the_starts() -> None:
    assert "fails-prefill-activations" in STARTS


def test_colour_junk_and_progress_bars_change_nothing() -> None:
    coloured = "\n".join(f"\x1b[32m{line}\x1b[0m" for line in SCENARIO.splitlines()).encode()
    bar = b"Loading safetensors:  0%|\r" + b"Loading safetensors: 50%|\r" * 5000 + b"\n"
    junk = bytes(range(256)) * 40 + b"\n"
    found = of(bar + coloured.replace(b"[2026-05-30 14:07:30]", junk + b"[2026-05-30 14:07:30]"))
    assert found.findings[0].code == "prefill-oom"
    assert found.findings[0].claim == of(SCENARIO).findings[0].claim


def test_the_last_of_several_starts_is_diagnosed() -> None:
    second = SCENARIO.replace("0.94", "0.93").replace("893.00 MiB", "890.00 MiB")
    found = of(SCENARIO + second)
    assert found.starts == 2
    assert "missed by 6 MiB" in found.findings[0].claim
    assert (lines_of(found.findings[0])[0] or 0) > len(SCENARIO.splitlines())


def test_interleaved_ranks_do_not_turn_the_phase_back() -> None:
    lagging = SCENARIO.replace(
        "[2026-05-30 14:09:03 TP3]", "[2026-05-30 14:09:01 TP5] Prefill batch. #new-seq: 1\n[2026-05-30 14:09:03 TP3]"
    )
    assert of(lagging).findings[0].code == "prefill-oom"


@pytest.mark.parametrize("cut", [0, 1, 100, 700, 1300])
def test_truncated_logs_are_survived(cut: int) -> None:
    found = of(SCENARIO.encode()[:cut])
    assert all(finding.confidence != "certain" for finding in found.findings)


def test_a_message_cut_in_the_middle_gives_no_number_that_is_not_there() -> None:
    found = of(SCENARIO[: SCENARIO.index("3.00 MiB is free")])
    assert found.findings[0].claim == "out of memory at the activation peak of a prefill step: tried 896 MiB"


@pytest.mark.slow
def test_hundreds_of_megabytes_stream_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    quiet = (
        b"[2026-05-30 14:08:00 TP0] Decode batch, #running-req: 1, #token: 8, token usage: 0.01, gen throughput "
        b"(token/s): 118.60, #queue-req: 0\n"
        b'[2026-05-30 14:08:00] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
    )
    head, tail = SCENARIO.split("[2026-05-30 14:09:00")
    with path.open("wb") as log:
        log.write(head.encode())
        for _ in range(200):
            log.write(quiet * 5000)
        log.write(b"[2026-05-30 14:09:00" + tail.encode())
    assert path.stat().st_size > 200 * 10**6
    tracemalloc.start()
    began = time.monotonic()
    with path.open("rb") as stream:
        found = diagnose(stream, str(path))
    seconds, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.findings[0].code == "prefill-oom"
    assert lines_of(found.findings[0])[0] == 2_000_014
    assert peak < 32 * 2**20
    assert seconds < 120, "a slow machine with memory tracing; without it this takes seconds"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (SCENARIO + SERVING, " (start 1 of 2; the last start serves)"),
        (SCENARIO + AFTER_WEIGHTS, " (start 1 of 2; the last start is in phase pool)"),
        (SCENARIO + SCENARIO, " (start 2 of 2)"),
        (SERVING + SCENARIO, " (start 2 of 2)"),
        (SERVING + SCENARIO + SERVING, " (start 2 of 3; the last start serves)"),
    ],
)
def test_a_finding_says_which_start_it_is_of(log: str, said: str) -> None:
    claims = [finding.claim for finding in of(log).findings]
    assert claims
    assert all(claim.endswith(said) for claim in claims)
    assert "(start" not in of(SCENARIO).findings[0].claim
