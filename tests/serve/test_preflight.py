"""What is said before a start."""

import pytest

from draftmark.machine.memory import Usage
from draftmark.serve import preflight
from draftmark.serve.preflight import version_note
from draftmark.units import GIB, Bytes

TESTED = ("0.4.0", "0.5.23")


@pytest.mark.parametrize("version", ["0.4.0", "0.5.15.post1", "0.5.23", "0.5.23.post2", None])
def test_tested_versions_say_nothing(version: str | None) -> None:
    assert version_note("sglang", version, TESTED) is None


@pytest.mark.parametrize(
    ("version", "nearest"), [("0.3.9", "0.4.0"), ("0.5.24", "0.5.23"), ("0.6.0rc1", "0.5.23"), ("1.0", "0.5.23")]
)
def test_other_versions_name_the_nearest_tested_one(version: str, nearest: str) -> None:
    note = version_note("sglang", version, TESTED)
    assert note == f"sglang {version} is outside the tested 0.4.0 to 0.5.23; it is treated like {nearest}"


def test_patches_of_the_newest_tested_minor_version_are_tested() -> None:
    assert version_note("vllm", "0.33.2", ("0.6", "0.33")) is None


def test_builds_without_a_number() -> None:
    note = version_note("sglang", "main-cann8", TESTED)
    assert note is not None
    assert "no numbered version" in note


def test_memory_that_somebody_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = tuple(Usage(index=i, name="x", total=Bytes(80 * GIB), used=Bytes(i * 20 * GIB)) for i in range(2))
    monkeypatch.setattr(preflight, "gpus_now", lambda: gpus)
    assert preflight.taken_notes() == ("GPU 1 has 20.0 of 80.0 GiB taken",)
