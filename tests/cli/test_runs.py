"""`runs` and `export` give back what a run left, killed or not."""

import csv
import io
import json
from pathlib import Path

from tests.cli.test_main import draft, filled


def test_a_killed_run_is_listed_and_exported_whole(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    run = filled(path)
    assert "open or killed" in draft("runs", store=path).stdout
    assert json.loads(draft("runs", "--json", store=path).stdout)[0]["id"] == run
    document = json.loads(draft("export", str(run), store=path).stdout)
    assert [record["finished"] for record in document["points"]] == [True, False]
    assert len(document["points"][1]["point"]["samples"][1]["arrivals"]) == 5


def test_csv_has_a_row_a_request_and_empty_cells_for_the_unknown(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    filled(path)
    out = tmp_path / "r.csv"
    assert draft("export", "--format", "csv", "-o", str(out), store=path).returncode == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [(row["asked"], row["completion_tokens"]) for row in rows] == [
        ("1000", "3"),
        ("1000", "5"),
        ("2000", "3"),
        ("2000", "5"),
    ]
    assert {row["cached_tokens"] for row in rows} == {""}
    assert {row["ttft_s"] for row in rows} == {"0.5"}


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    filled(path)
    done = draft("export", "-o", str(tmp_path / "no" / "r.json"), store=path)
    assert done.returncode == 2
    assert "r.json" in done.stderr
