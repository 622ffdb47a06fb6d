"""Tiny checkpoints and models, made once. Without torch and transformers nothing here is collected."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders gqa, mla and windowed."""
    from draftmark.embedded import tiny
    from tests.embedded.in_process import SHAPES

    folder = tmp_path_factory.mktemp("checkpoints")
    for name, shape in SHAPES.items():
        tiny.write(folder / name, shape())
    return folder


@pytest.fixture(scope="session")
def lively() -> dict[str, Any]:
    """Models with large random weights: their greedy output varies, where that of small weights soon repeats."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # one thread is faster here, where others wait for cores
    from tests.embedded.in_process import SHAPES

    models = {}
    for name, shape in SHAPES.items():
        torch.manual_seed(7)
        config = shape()
        config.initializer_range = 0.15
        models[name] = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return models
