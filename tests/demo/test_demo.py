"""The main job, for real: two models, an engine each, a page, and no process left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from draftmark.store import Store
from draftmark.trial import Stopped

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def engines_of(folder: Path) -> list[psutil.Process]:
    """Engines that run on models in the folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
        and "draftmark.embedded" in str(process.info)
    ]


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "draftmark", "demo", "--output", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(folder.parent), "XDG_DATA_HOME": str(folder.parent)},
    )


def test_the_demo_does_the_main_job(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with start(folder) as process:
        said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert engines_of(folder) == []
    assert (folder / "report.html").read_text().count("<svg") == 6
    for path in ("report.html", "demo.db", "logs", "models"):
        assert str(folder / path) in said
    with Store(folder / "demo.db") as store:
        exports = [store.export(record.id) for record in store.runs()]
    assert [export.run.status for export in exports] == ["done", "done"]
    for export in exports:
        trial = export.trials[0]
        assert isinstance(trial.outcome, Stopped)
        assert trial.pool is not None
        assert trial.predicted_pool is not None
        assert trial.predicted_pool.tokens == pytest.approx(trial.pool.tokens, rel=0.001)
        assert trial.predicted[0].amount("weights") == pytest.approx(trial.observed[0].amount("weights"), rel=0.01)
        points = [record.point for record in export.points if record.finished]
        assert [point.invalid for point in points] == [None] * 6
        assert [point.prompt_tokens for point in points] == [point.asked for point in points]
        assert max(point.asked for point in points) >= 4096


def test_ctrl_c_stops_the_engine_and_keeps_the_results(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with start(folder) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "measuring at 512" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        process.wait(timeout=60)
    assert process.returncode == 130, said
    for _ in range(50):
        if not engines_of(folder):
            break
        time.sleep(0.1)
    assert engines_of(folder) == []
    with Store(folder / "demo.db") as store:
        export = store.export(store.run().id)
    assert export.run.status == "interrupted"
    assert export.points[0].finished
    assert export.points[0].point.samples


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with start(tmp_path / "file" / "out") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 2  # what it is doing, and why it cannot
    assert "choose another --output" in said
