"""The server and the client are killed at random moments; no finished point may be lost, and none poisoned."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from draftmark.errors import DraftmarkError
from draftmark.selftest.model import Setup
from draftmark.selftest.process import GroundTruth, ground_truth
from draftmark.selftest.schedule import Pace
from draftmark.store import Store
from draftmark.sweep import Event, Options, Started
from draftmark.sweep.session import Session, run_sweep
from draftmark.units import Tokens

DEPTHS = (100, 200, 300, 400)
OPTIONS = Options(warm_up=0, repeats=2, most_repeats=2, output=Tokens(16))
SETUP = Setup(pace=Pace(first=0.03, step=0.002))
"""A sweep takes about half a second."""
KILLS = 20
pytestmark = pytest.mark.engine
"""Forty servers and clients are started: too slow for the unit tests."""


def resumed_soundly(path: Path, run: int, server: GroundTruth) -> None:
    """Going on measures what was not finished, keeps what was, and ends with every point valid."""
    with Store(path) as store:
        before = [record for record in store.points(run) if record.finished and record.point.invalid is None]
        session = Session(store=store, arguments=(), resume=run)
        server.truth()
        result = run_sweep(server.url, DEPTHS, OPTIONS, session=session)
        assert result.stopped is None
        assert [point.invalid for point in result.points] == [None] * len(DEPTHS)
        sent = {truth.prompt_tokens for truth in server.truth()}
        assert not sent.intersection(record.point.asked for record in before), "a finished point was measured again"
        assert [record for record in store.points(run) if record.id in {kept.id for kept in before}] == before


@pytest.mark.parametrize("trial", range(KILLS))
def test_the_server_is_killed(tmp_path: Path, trial: int) -> None:
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        server.process.kill()

    with Store(tmp_path / "runs.db") as store:
        session = Session(store=store, arguments=())
        with ground_truth(SETUP) as server:
            timer = threading.Timer(random.Random(trial).uniform(0, 0.5), kill)

            def from_the_start(event: Event) -> None:
                if isinstance(event, Started):
                    timer.start()

            stopped = None
            try:
                stopped = run_sweep(server.url, DEPTHS, OPTIONS, session=session, on_event=from_the_start).stopped
            except DraftmarkError as problem:
                stopped = str(problem)
            ended = time.monotonic()
            timer.cancel()
        assert killed, "the sweep lasts longer than the kill is away"
        assert stopped is not None
        assert ended - killed[0] < 5
    if session.run is not None:
        with ground_truth(SETUP) as server:
            resumed_soundly(tmp_path / "runs.db", session.run, server)


@pytest.mark.parametrize("trial", range(KILLS))
def test_the_client_is_killed(tmp_path: Path, trial: int, server: GroundTruth) -> None:
    server.control(SETUP)
    path = tmp_path / "runs.db"
    command = [sys.executable, "-m", "draftmark", "sweep", "--url", server.url, "--store", str(path), "--json"]
    command += ["--depths", ",".join(map(str, DEPTHS)), "--output", "16", "--repeats", "2", "--max-repeats", "2"]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not sum(truth.prompt_tokens == DEPTHS[0] for truth in server.truth()):
        time.sleep(0.01)
    time.sleep(random.Random(trial).uniform(0, 0.6))
    client.kill()
    client.wait()
    with Store(path) as store:
        (run,) = store.runs()
        records = store.points(run.id)
        assert [record.finished for record in records[:-1]] == [True] * (len(records) - 1), "one point at most is open"
    resumed_soundly(path, run.id, server)
