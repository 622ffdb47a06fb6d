"""The command line itself: light to start, one line for each error."""

import subprocess
import sys
from pathlib import Path

import pytest

import draftmark
from draftmark.store import Store
from tests.store.test_store import HERE, sample

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


def filled(path: Path) -> int:
    with Store(path) as store:
        run = store.begin_run("sweep", ["sweep", "--url", "http://127.0.0.1:1"], HERE)
        for asked in (1000, 2000):
            point = store.begin_point(run, asked=asked, output=3, concurrency=1, mode="cold")
            store.add_samples(point, [sample(), sample(5)])
            if asked == 1000:
                store.end_point(point)
    return run


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
        (["export", "7"], "there is no store yet"),
        (["export"], "there is no store yet"),
        (["export", "--format", "xml"], "'xml'"),
        (["runs", "--store", "/proc/nowhere/d.db"], "there is no store yet"),
        (["explain", "--bandwidth", "0"], "is not a bandwidth"),
        (["explain", "--bandwidth", "nan"], "is not a bandwidth"),
        (["report", "--bandwidth", "-1"], "is not a bandwidth"),
        (["serve", "/no/such/model", "--engine", "vllm"], "no such model folder"),
        (["serve", "/no/such/model", "--engine", "sglang"], "no such model folder"),
        (["serve", str(Path(__file__).parents[1] / "data"), "--engine", "vllm"], "no config.json there"),
        (["serve", "own/model", "--engine", "vllm", "--port", "99999"], "no TCP port 99999"),
        (["serve", "own/model", "--engine", "sglang", "--python", "/no/python"], "/no/python: cannot be run"),
        (["inspect", "http://127.0.0.1:99999"], "Port out of range 0-65535"),
        (["inspect", "127.0.0.1:30000"], "is not an http or https URL"),
        (["sweep", "--url", "http://127.0.0.1:99999", "--depths", "1k"], "Port out of range 0-65535"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = draft(*arguments, store=tmp_path / "d.db")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("draftmark: ")
    assert says in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_the_output_is_one_line(tmp_path: Path) -> None:
    with Store(tmp_path / "d.db"):
        pass
    done = subprocess.run(
        f"{sys.executable} -m draftmark runs --json --store {tmp_path}/d.db > /dev/full",
        shell=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_a_terminal_that_knows_only_ascii_gets_other_signs(tmp_path: Path) -> None:
    filled(tmp_path / "d.db")
    done = subprocess.run(
        [sys.executable, "-m", "draftmark", "runs", "--store", str(tmp_path / "d.db")],
        capture_output=True, timeout=60, env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"sglang" in done.stdout


def test_reading_makes_nothing(tmp_path: Path) -> None:
    for command in ("runs", "explain", "export", "report"):
        assert draft(command, "--store", str(tmp_path / "new" / "d.db"), store=tmp_path / "d.db").returncode == 2
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob("*.db")), "only what was named is looked at"
