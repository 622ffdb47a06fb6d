"""The command line itself: light to start, one line for each error."""

import subprocess
import sys
from pathlib import Path

import pytest

import draftmark

LOADED = """
import sys
sys.argv = ["draftmark", "--help"]
from draftmark.cli.main import main
try:
    main()
except SystemExit:
    pass
print("MODULES", *sys.modules, file=sys.stderr)
"""
HEAVY = {"torch", "transformers", "triton", "numpy", "scipy", "matplotlib", "httpx", "huggingface_hub", "tokenizers"}


def draft(*arguments: str, store: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "draftmark", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"DRAFTMARK_STORE": str(store), "PATH": "/usr/bin:/bin", "HOME": str(store.parent)},
    )


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60)
    modules = set(done.stderr.partition("MODULES ")[2].split())
    assert "draftmark.cli.main" in modules
    assert modules & HEAVY == set()


def test_every_command_explains_itself(tmp_path: Path) -> None:
    from draftmark.cli.main import app

    names = [info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands]
    assert len(names) >= 2
    for name in names:
        done = draft(name.replace("_", "-"), "--help", store=tmp_path / "d.db")
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout


def test_version(tmp_path: Path) -> None:
    assert draft("--version", store=tmp_path / "d.db").stdout == f"draftmark {draftmark.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["runs", "--frob"], "No such option: --frob"),
        (["export", "seven"], "'run'"),
        (["export", "7"], "holds no run 7"),
        (["export"], "holds no run yet"),
        (["export", "--format", "xml"], "'xml'"),
        (["runs", "--store", "/proc/nowhere/d.db"], "/proc/nowhere/d.db"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = draft(*arguments, store=tmp_path / "d.db")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("draftmark: ")
    assert says in done.stderr
