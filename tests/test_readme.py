"""The README tells the truth about the source and the commands."""

import re
import subprocess
import sys
from pathlib import Path

from draftmark.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_map_is_the_source() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "readme_map.py", "--check"], check=False)
    assert done.returncode == 0, "run scripts/readme_map.py"


def test_every_module_says_what_it_is_for() -> None:
    listed = re.findall(r"^ {4,6}(\S+\.py) +(.*)$", README, flags=re.MULTILINE)
    assert len(listed) > 80
    assert [name for name, words in listed if len(words) < 12] == []


def test_every_command_is_in_the_readme() -> None:
    names = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    assert {name for name in names if f"draftmark {name}" not in README} == set()


def test_every_page_of_the_docs_is_linked_and_every_link_leads_somewhere() -> None:
    links = set(re.findall(r"\]\(([\w./-]+)\)", README))
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")} <= links
    assert [link for link in links if not (ROOT / link).exists()] == []
