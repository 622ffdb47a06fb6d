"""The accuracy that docs/accuracy.md states, and the bounds that it must stay within."""

import sys
from statistics import mean

import pytest

from tests.zoo import DATA

ROOT = DATA.parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "accuracy"))

import starts_sglang  # noqa: E402
import starts_vllm  # noqa: E402
from rows import Row  # noqa: E402


@pytest.fixture(scope="module")
def vllm() -> dict[str, list[Row]]:
    return starts_vllm.vllm_predictions()


def covered(rows: list[Row]) -> float:
    return sum(row.low <= row.real <= row.high for row in rows) / len(rows)


def test_vllm_with_whole_models_left_out(vllm: dict[str, list[Row]]) -> None:
    for kind in ("given", "predicted"):
        rows = vllm[kind]
        assert len(rows) >= 45
        dense = [abs(row.share) for row in rows if row.family == "dense"]
        others = [abs(row.share) for row in rows if row.family != "dense"]
        assert mean(dense) <= 0.015
        assert mean(others) <= 0.03
        assert mean(abs(row.error) for row in rows) <= 0.35
        assert 0.85 <= covered(rows) <= 0.95


def test_vllm_beats_one_constant(vllm: dict[str, list[Row]]) -> None:
    errors = {kind: mean(abs(row.error) for row in rows) for kind, rows in vllm.items()}
    assert errors["given"] < 0.5 * errors["constant"]


def test_replays_close() -> None:
    assert max(starts_vllm.replays()) <= 0.002


def test_sglang_on_the_h200() -> None:
    pools, _ = starts_sglang.device_starts()
    assert len(pools) >= 12
    assert mean(abs(row.error) for row in pools) <= 0.8
    assert mean(abs(row.share) for row in pools) <= 0.03
    assert covered(pools) >= 0.85


def test_a_first_start_helps_the_second() -> None:
    pairs, before, after = starts_vllm.learned()
    assert pairs > 50
    assert after < before


def test_the_page_is_as_it_would_be_written() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("accuracy_page", ROOT / "scripts" / "accuracy" / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "accuracy.md").read_text() == module.page()
