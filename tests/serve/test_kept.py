"""Starts kept in the store, and engines found again."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from draftmark import __version__
from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.ledger import Pool
from draftmark.serve import Kept, Prediction, Server, StartFailed, attach, records, serve, stop
from draftmark.serve.events import Progress
from draftmark.serve.process import EngineProcess, is_running
from draftmark.store import Store, TrialRecord
from draftmark.trial import Environment, OutOfMemory, Ready, Stopped
from draftmark.units import Tokens
from tests.serve.toy_adapter import ToyAdapter


def started(store: Store, configuration: Configuration) -> Kept:
    run = store.begin_run("serve", (), Environment(draftmark=__version__))
    return Kept(store, run, configuration, Prediction(pool=Pool(tokens=Tokens(4000))))


def only(store: Store) -> TrialRecord:
    (trial,) = store.trials()
    return trial


def test_a_trial_is_kept_step_by_step(configuration: Configuration, tmp_path: Path) -> None:
    def starting(progress: Progress) -> Server:
        assert only(store).predicted_pool == Pool(tokens=Tokens(4000))
        return serve(configuration, adapter=ToyAdapter(), progress=progress)

    with Store(tmp_path / "runs.db") as store:
        with started(store, configuration) as kept:
            server = kept.start(starting)
            during = only(store)
            assert isinstance(during.outcome, Ready)
            assert during.pool == Pool(tokens=Tokens(4096))
            assert during.handle is not None
            assert during.handle.pid == server.process.pid
            assert during.log == server.log_path
            assert during.environment.engine_version == "1"
            assert store.run().environment.engine_version == "1", "the list of runs shows it"
            assert during.ended is None
        after = only(store)
        assert isinstance(after.outcome, Stopped)
        assert after.ended is not None
        assert [seen.quantity for seen in after.observations].count("pool_tokens") == 1


def test_a_failed_start_is_kept_with_its_numbers(configuration: Configuration, tmp_path: Path) -> None:
    failing = msgspec.structs.replace(configuration, flags=("--behaviour", "oom"))
    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(StartFailed), started(store, failing) as kept:
            kept.start(lambda progress: serve(failing, adapter=ToyAdapter(), progress=progress))
        trial = only(store)
    assert isinstance(trial.outcome, OutOfMemory)
    assert {"out_of_memory", "tried", "free_at_failure"} <= {seen.quantity for seen in trial.observations}
    assert trial.ended is not None


def test_a_start_that_is_refused_is_closed(configuration: Configuration, tmp_path: Path) -> None:
    def refuse(progress: Progress) -> Server:
        raise BadInput("no")

    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(BadInput), started(store, configuration) as kept:
            kept.start(refuse)
        assert only(store).outcome is None
        assert only(store).ended is not None


def test_a_detached_engine_is_attached_and_stopped(configuration: Configuration) -> None:
    with serve(configuration, adapter=ToyAdapter()) as server:
        server.detach()
    assert is_running(server.record.pid, server.record.created)
    with attach(None, adapter=ToyAdapter()) as again:
        assert again.url == server.url
        assert again.pool == Pool(tokens=Tokens(4096))
        assert isinstance(again.outcome, Ready)
        again.detach()
    assert stop(server.url).name == server.record.name
    assert EngineProcess(server.record.pid, server.record.created).members() == []
    assert records.running() == ()


def test_an_engine_outlives_a_draftmark_that_is_killed(configuration: Configuration) -> None:
    program = (
        "import sys, msgspec\n"
        "from draftmark.configuration import Configuration\n"
        "from draftmark.serve import serve\n"
        "from tests.serve.toy_adapter import ToyAdapter\n"
        "import time\n"
        "with serve(msgspec.json.decode(sys.argv[1], type=Configuration), adapter=ToyAdapter()):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    argv = (sys.executable, "-c", program, msgspec.json.encode(configuration).decode())
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"ready\n"
        supervisor.kill()
    time.sleep(0.5)
    (record,) = records.running()
    with attach(record.name, adapter=ToyAdapter()) as again:
        assert again.pool == Pool(tokens=Tokens(4096))
    assert EngineProcess(record.pid, record.created).members() == []


def test_stopping_what_does_not_run_lists_what_does(configuration: Configuration) -> None:
    with pytest.raises(BadInput, match="no engine that Draftmark started is running"):
        stop("nonsense")
    with (
        serve(configuration, adapter=ToyAdapter()) as server,
        pytest.raises(BadInput, match=f"no running engine is called 'nonsense'; name one of {server.record.name}"),
    ):
        stop("nonsense")


def test_a_record_of_a_dead_engine_is_forgotten(configuration: Configuration) -> None:
    with serve(configuration, adapter=ToyAdapter()) as server:
        records.save(msgspec.structs.replace(server.record, name="ghost", created=1.0))
        (records.folder() / "broken.json").write_text("{")
        assert [record.name for record in records.running()] == [server.record.name]
    assert not (records.folder() / "ghost.json").exists()
