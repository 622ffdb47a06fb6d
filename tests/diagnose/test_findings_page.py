"""docs/findings.md describes every code, with an example log that gives it."""

import io
import re
from pathlib import Path

import pytest

from draftmark.diagnose import CODES, diagnose

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
SECTIONS = dict(re.findall(r"^### ([\w-]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_page_and_the_code_have_the_same_codes() -> None:
    assert sorted(SECTIONS) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_example_is_diagnosed(code: str) -> None:
    (example,) = re.findall(r"```log\n(.*?)```", SECTIONS[code], re.DOTALL)
    found = diagnose(io.BytesIO(example.encode()), "example").findings
    assert code in [finding.code for finding in found]
    if code != "fragmented":
        assert found[0].code == code
