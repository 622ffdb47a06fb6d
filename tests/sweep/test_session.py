"""What a sweep keeps of the server that it measured."""

from pathlib import Path

import pytest

from draftmark.configuration import Configuration
from draftmark.observation import ServerState
from draftmark.store import Store
from draftmark.sweep.session import environment
from draftmark.trial import Environment


@pytest.mark.parametrize(("stated", "kept"), [(None, "0.5.23"), ("0.5.15", "0.5.15")])
def test_a_server_that_does_not_tell_its_version_has_that_of_its_start(
    tmp_path: Path, stated: str | None, kept: str
) -> None:
    state = ServerState(url="http://127.0.0.1:1", engine="sglang", version=stated, models=("m",))
    started = Environment(draftmark="0.1.0", engine="sglang", engine_version="0.5.23")
    with Store(tmp_path / "d.db") as store:
        store.begin_trial(store.begin_run("serve", [], started), Configuration(engine="sglang", model="m"), started)
        (trial,) = store.trials()
    assert environment(state, "m", trial).engine_version == kept
    assert environment(state, "m").engine_version == stated
