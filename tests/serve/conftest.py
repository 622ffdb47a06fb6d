import json
from pathlib import Path

import pytest

from draftmark.configuration import Configuration


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records and logs of these tests lie in a folder of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "toy"}))
    return str(folder)


@pytest.fixture
def configuration(model: str) -> Configuration:
    return Configuration(engine="embedded", model=model, device="cpu")
