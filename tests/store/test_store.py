"""The store keeps what it was given, whatever happens to the process."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.configuration import Configuration, Speculative
from draftmark.errors import BadInput
from draftmark.finding import Change, Finding, Remedy
from draftmark.hardware import Bandwidth
from draftmark.ledger import Entry, Pool, close
from draftmark.observation import Observation, Source
from draftmark.sample import Arrival, Sample
from draftmark.store import Handle, Store
from draftmark.trial import Environment, OutOfMemory
from draftmark.units import MIB, Bytes, BytesPerSecond, Seconds, Tokens

HERE = Environment(draftmark="0.1.0", engine="sglang", engine_version="0.5.23", flags=("--tp", "8"))
SOURCE = Source(place="server.log", line=7, text="Tried to allocate 896.00 MiB")
LEDGER = close(
    rank=3, capacity=Bytes(100), entries=(Entry(account="pool", bytes=Bytes(60), why="61 x 1152"),), free=Bytes(30)
)


def sample(tokens: int = 3) -> Sample:
    return Sample(
        due=Seconds(0.0),
        sent=Seconds(0.001),
        arrivals=tuple(Arrival(at=Seconds(0.5 + i), tokens=Tokens(i + 1)) for i in range(tokens)),
        ended=Seconds(9.0),
        prompt_tokens=Tokens(1000),
        cached_tokens=None,
        completion_tokens=Tokens(tokens),
        counted_by="usage per chunk",
    )


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    configuration = Configuration(engine="sglang", model="m", speculative=Speculative(algorithm="EAGLE", steps=4))
    outcome = OutOfMemory(phase="prefill", message="CUDA out of memory", tried=Bytes(896 * MIB), free=Bytes(893 * MIB))
    seen = Observation(quantity="tried", value=896 * MIB, unit="bytes", source=SOURCE, rank=3, phase="prefill")
    finding = Finding(
        code="prefill-activation-peak",
        severity="fatal",
        confidence="certain",
        claim="missed by 3 MiB",
        evidence=(seen,),
        remedies=(Remedy(changes=(Change(flag="--x", direction="lower"),), arithmetic="896 - 893", cost="none"),),
    )
    with Store(tmp_path / "a" / "d.db") as store:
        run = store.begin_run("serve", ["serve", "m"], HERE)
        trial = store.begin_trial(run, configuration, HERE, log="server.log")
        store.set_handle(trial, Handle(url="http://127.0.0.1:1", pid=5, created=1.5))
        store.set_prediction(trial, [LEDGER], Pool(tokens=Tokens(9), low=Tokens(8), high=Tokens(10)))
        store.set_observed(trial, [LEDGER], Pool(tokens=Tokens(11), bytes=Bytes(0), page=Tokens(1), groups=2))
        store.add_observations(trial, [seen])
        store.set_outcome(trial, outcome)
        store.end_trial(trial)
        point = store.begin_point(run, asked=1000, output=3, concurrency=1, mode="cold", trial=trial)
        store.add_samples(point, [sample()])
        store.end_point(point, flags=["cold unproven"])
        store.add_findings(run, [finding], trial)
        store.describe_run(
            run,
            bandwidth=Bandwidth(
                bytes_per_second=BytesPerSecond(1e10),
                low=BytesPerSecond(9e9),
                high=BytesPerSecond(1.1e10),
                samples=5,
                method="copy",
            ),
        )
        store.end_run(run, "failed")
    with Store(tmp_path / "a" / "d.db") as store:
        export = store.export(run)
    kept = export.trials[0]
    assert (kept.configuration, kept.outcome, kept.environment) == (configuration, outcome, HERE)
    assert (kept.predicted, kept.observed, kept.observations) == ((LEDGER,), (LEDGER,), (seen,))
    assert kept.pool == Pool(tokens=Tokens(11), bytes=Bytes(0), page=Tokens(1), groups=2)
    assert kept.predicted_pool is not None
    assert kept.predicted_pool.high == 10
    assert kept.handle is not None
    assert kept.handle.created == 1.5
    assert export.points[0].finished
    assert export.points[0].point.samples == (sample(),)
    assert export.findings == (finding,)
    assert (export.run.status, export.run.arguments) == ("failed", ("serve", "m"))
    assert export.run.bandwidth is not None


@settings(max_examples=25, deadline=None)
@given(
    at=st.lists(st.floats(min_value=0, allow_nan=False, allow_infinity=False), max_size=5),
    error=st.none() | st.text(max_size=40),
    cached=st.none() | st.integers(0, 2**40),
)
def test_samples_are_kept_to_the_bit(
    at: list[float], error: str | None, cached: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = Sample(
        due=Seconds(0.1),
        sent=Seconds(0.2),
        arrivals=tuple(Arrival(at=Seconds(t), tokens=None) for t in at),
        ended=None,
        prompt_tokens=None,
        cached_tokens=None if cached is None else Tokens(cached),
        completion_tokens=None,
        counted_by="chunks",
        error=error,
    )
    with Store(tmp_path_factory.mktemp("s") / "d.db") as store:
        run = store.begin_run("sweep", [], HERE)
        point = store.begin_point(run, asked=1, output=1, concurrency=1, mode="cold")
        store.add_samples(point, [written])
        assert store.points(run)[0].point.samples == (written,)


WRITER = """
import sys
import time
from pathlib import Path
from draftmark.store import Store
from tests.store.test_store import HERE, sample
with Store(Path(sys.argv[1])) as store:
    run = store.begin_run("sweep", [], HERE)
    for depth in range(1, 100000):
        point = store.begin_point(run, asked=depth, output=3, concurrency=1, mode="cold")
        store.add_samples(point, [sample()])
        print(depth, flush=True)
        store.end_point(point)
"""


@pytest.mark.slow
def test_kill_9_loses_no_finished_request(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    root = Path(__file__).parents[2]
    for kills in range(1, 6):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True, cwd=root) as it:
            assert it.stdout is not None
            said = [int(it.stdout.readline()) for _ in range(7 * kills)]
            os.kill(it.pid, signal.SIGKILL)
            said += [int(line) for line in it.stdout if line.endswith("\n")]
        with Store(path) as store:
            run = store.run()
            points = store.points(run.id)
        assert (run.id, run.status) == (kills, None)
        kept = [record for record in points if record.point.samples]
        assert len(kept) >= len(said)
        assert all(record.finished for record in points[: len(said) - 1])
        assert [record.point.asked for record in points] == list(range(1, len(points) + 1))


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute("pragma user_version = 99")
    database.close()
    with pytest.raises(BadInput, match=r"schema version 99.*update draftmark"):
        Store(path)


@pytest.mark.parametrize("make", ["text", "foreign", "folder", "read-only"])
def test_what_is_no_store_is_refused(tmp_path: Path, make: str) -> None:
    path = tmp_path / "d.db"
    if make == "text":
        path.write_text("hello " * 1000)
    elif make == "foreign":
        database = sqlite3.connect(path)
        database.execute("create table t (x)")
        database.close()
    elif make == "folder":
        path.mkdir()
    else:
        path = Path("/proc/nowhere/d.db")
    with pytest.raises(BadInput, match=str(path)):
        Store(path)


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path: Path) -> None:
    with Store(tmp_path / "d.db") as store:
        run = store.begin_run("sweep", [], HERE)
        point = store.begin_point(run, asked=1, output=1, concurrency=1, mode="cold")
        store._database.select("pragma max_page_count = 60")
        with pytest.raises(BadInput, match=r"full.*--store"):
            store.add_samples(point, [sample(100)] * 1000)
        store.add_samples(point, [sample()])
        kept = len(store.points(run)[0].point.samples)
    with Store(tmp_path / "d.db") as store:
        assert len(store.points(run)[0].point.samples) == kept


def test_two_processes_write_one_file(tmp_path: Path) -> None:
    with Store(tmp_path / "d.db") as one, Store(tmp_path / "d.db") as two:
        runs = [store.begin_run("sweep", [], HERE) for store in (one, two, one)]
        assert [record.id for record in two.runs()] == runs


def test_a_store_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    with Store(tmp_path / "d.db") as store:
        store.begin_run("sweep", [], HERE)
        with Store(tmp_path / "d.db", read_only=True) as reading:
            assert len(reading.runs()) == 1
            with pytest.raises(BadInput, match="readonly"):
                reading.begin_run("sweep", [], HERE)
    before = (tmp_path / "d.db").read_bytes()
    with Store(tmp_path / "d.db", read_only=True) as reading:
        assert len(reading.runs()) == 1
    assert (tmp_path / "d.db").read_bytes() == before


@pytest.mark.parametrize("content", ["missing", "empty"])
def test_reading_needs_a_store(tmp_path: Path, content: str) -> None:
    if content == "empty":
        (tmp_path / "d.db").touch()
    with pytest.raises(BadInput, match="draftmark sweep"):
        Store(tmp_path / "d.db", read_only=True)


def test_the_engine_behind_an_address_is_found_while_it_runs(tmp_path: Path) -> None:
    url, configuration = "http://127.0.0.1:8000", Configuration(engine="embedded", model="m")
    with Store(tmp_path / "d.db") as store:
        serving = store.begin_run("serve", [], HERE)
        trial = store.begin_trial(serving, configuration, HERE)
        assert store.trial_at(url, time.time()) is None
        store.set_handle(trial, Handle(url=url))
        found = store.trial_at(url, time.time())
        assert found is not None
        assert found.id == trial
        assert store.trial_at("http://127.0.0.1:8001", time.time()) is None
        sweeping = store.begin_run("sweep", [], HERE)
        point = store.begin_point(sweeping, asked=1, output=1, concurrency=1, mode="cold", trial=trial)
        store.end_point(point)
        assert [kept.id for kept in store.export(sweeping).trials] == [trial]
        store.end_trial(trial)
        assert store.trial_at(url, time.time() + 1) is None


def test_no_run_is_said(tmp_path: Path) -> None:
    with Store(tmp_path / "d.db") as store:
        with pytest.raises(BadInput, match="no run yet"):
            store.run()
        with pytest.raises(BadInput, match="no run 7"):
            store.run(7)


@pytest.mark.parametrize(("before", "learnt"), [(None, "0.5.23"), ("0.5.15", "0.5.15")])
def test_a_run_learns_the_engines_version_from_its_trial(tmp_path: Path, before: str | None, learnt: str) -> None:
    with Store(tmp_path / "d.db") as store:
        other, run = (store.begin_run("serve", [], msgspec.structs.replace(HERE, engine_version=before)) for _ in "12")
        trial = store.begin_trial(run, Configuration(engine="sglang", model="m"), Environment(draftmark="0.1.0"))
        store.set_environment(trial, Environment(draftmark="0.1.0", engine="sglang"))
        assert store.run(run).environment.engine_version == before, "unknown teaches nothing"
        store.set_environment(trial, HERE)
        assert store.run(run).environment.engine_version == learnt
        assert store.run(other).environment.engine_version == before
        assert store.run(run).environment.flags == HERE.flags
