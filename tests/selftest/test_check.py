import json
import signal
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from draftmark.sample import Arrival, Sample
from draftmark.selftest.check import LoadCheck, Report, ShapeCheck, check_load, check_shape, rate_error, ttft_error
from draftmark.selftest.model import Setup
from draftmark.selftest.pretence import Truth
from draftmark.selftest.process import ground_truth
from draftmark.selftest.schedule import SHAPES, Pace
from draftmark.selftest.verdict import failures
from draftmark.units import Seconds, Tokens


def test_every_token_is_counted_in_every_shape() -> None:
    with ground_truth(Setup()) as server:
        checks = [
            check_shape(server, shape, requests=2, output=16, pace=Pace(first=0.02, step=0.002)) for shape in SHAPES
        ]
        load = check_load(server, seconds=0.2)
    assert [check.exact for check in checks] == [True] * len(SHAPES)
    assert [check.shape for check in checks if check.rate_median is None] == ["no usage"]
    assert load.requests_per_second > 100
    assert load.chunks_per_second > 1000


TRUTH = Truth(seed=1, prompt_tokens=9, received=100.0, step=0.1, sends=[(100.5, 1), (100.6, 3), (100.7, 5)])
SAMPLE = Sample(
    due=Seconds(99.9),
    sent=Seconds(99.9),
    arrivals=tuple(Arrival(at=Seconds(at), tokens=Tokens(tokens)) for at, tokens in ((0.51, 1), (0.61, 3), (0.75, 5))),
    ended=Seconds(0.8),
    prompt_tokens=Tokens(9),
    cached_tokens=None,
    completion_tokens=Tokens(5),
    counted_by="usage per chunk",
)


def test_errors_are_against_the_servers_own_times() -> None:
    assert ttft_error(SAMPLE, TRUTH) == pytest.approx(0.01)
    assert rate_error(SAMPLE, TRUTH) == pytest.approx(1 - 0.2 / 0.24)


def test_what_is_not_met_is_named() -> None:
    good = ShapeCheck(
        shape="plain",
        requests=1,
        exact=True,
        ttft_median=Seconds(0.0002),
        ttft_worst=Seconds(0.01),
        rate_median=0.001,
        rate_worst=0.1,
    )
    load = LoadCheck(
        streams=64,
        ttft_mean=Seconds(0.001),
        ttft_p99=None,
        requests_per_second=1.0,
        chunks_per_second=1.0,
        peak_memory=1,
    )
    assert failures(Report(shapes=(good,), load=load)) == ()
    bad = msgspec.structs.replace(good, exact=False, ttft_median=Seconds(0.002), rate_median=0.006)
    late = msgspec.structs.replace(load, ttft_mean=Seconds(0.006))
    assert [line.split(":")[0] for line in failures(Report(shapes=(bad,), load=late))] == ["plain"] * 3 + ["64 streams"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_does_not_outlive_the_selftest(number: int) -> None:
    command = [sys.executable, "-m", "draftmark", "selftest", "--requests", "100"]
    selftest = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    servers: list[psutil.Process] = []
    while not servers:
        time.sleep(0.05)
        servers = psutil.Process(selftest.pid).children()
    time.sleep(0.3)
    selftest.send_signal(number)
    assert selftest.wait(timeout=10) != 0
    deadline = time.monotonic() + 10
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in servers):
        assert time.monotonic() < deadline, "the server is an orphan"
        time.sleep(0.05)


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_selftest_says_how_it_goes_on(json_wanted: bool) -> None:
    command = [sys.executable, "-m", "draftmark", "selftest", "--requests", "1", "--seconds", "0.1"]
    done = subprocess.run(
        [*command, *(["--json"] if json_wanted else [])], capture_output=True, text=True, check=False, timeout=60
    )
    told = [line.removeprefix("measured: ") for line in done.stderr.splitlines() if line.startswith("measured: ")]
    assert told == ([] if json_wanted else list(SHAPES))
    if json_wanted:
        assert [row["shape"] for row in json.loads(done.stdout)["shapes"]] == list(SHAPES)
    else:
        assert all(shape in done.stdout for shape in SHAPES)
