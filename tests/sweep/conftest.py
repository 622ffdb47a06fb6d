from collections.abc import Iterator

import pytest

from draftmark.selftest.model import Setup
from draftmark.selftest.process import GroundTruth, ground_truth
from draftmark.selftest.schedule import Pace

FAST = Pace(first=0.01, step=0.001)


@pytest.fixture(scope="session")
def _server() -> Iterator[GroundTruth]:
    with ground_truth(Setup(pace=FAST)) as server:
        yield server


@pytest.fixture
def server(_server: GroundTruth) -> GroundTruth:
    _server.control(Setup(pace=FAST))
    _server.truth()
    return _server
