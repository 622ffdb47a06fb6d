"""The page stands alone, says what is unknown, and lets nothing that a run contains become markup."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.ledger import Entry, Pool, close
from draftmark.report.page import chapter, page, write_page
from draftmark.store import RunExport, Store
from draftmark.trial import Environment
from draftmark.units import Bytes, Tokens
from tests.test_explain import request

VOID = {"meta", "br", "link", "img", "hr", "use", "path", "line"}


class Balanced(HTMLParser):
    """Collects text, and fails on a tag that closes another than the one that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value for name, value in attrs if name in {"src", "data"} and value]
        self.loaded += [value for name, value in attrs if name == "href" and value and not value.startswith("#")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Balanced:
    parsed = Balanced()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    return parsed


def filled(path: Path, *, model: str = "m", invalid: str | None = None) -> RunExport:
    here = Environment(draftmark="0.1.0", engine="embedded", model=model)
    entry = Entry(account="pool", bytes=Bytes(600), why="10 tokens x 60 B")
    with Store(path) as store:
        run = store.begin_run("demo", ["demo", "--output", "<x>"], here)
        trial = store.begin_trial(run, Configuration(engine="embedded", model=model), here, log="server.log")
        store.set_prediction(trial, [close(rank=0, capacity=Bytes(1000), entries=(entry,))], Pool(tokens=Tokens(11)))
        observed = close(rank=0, capacity=Bytes(1000), entries=(entry,), free=Bytes(300))
        store.set_observed(trial, [observed], Pool(tokens=Tokens(10)))
        for depth in (1000, 4000, 16000):
            point = store.begin_point(run, asked=depth, output=24, concurrency=1, mode="cold", trial=trial)
            store.add_samples(point, [request(depth, 0.01 + 1e-6 * depth), request(depth, 0.0101 + 1e-6 * depth)])
            store.end_point(point, invalid=invalid)
        store.begin_point(run, asked=99_999, output=24, concurrency=1, mode="cold", trial=trial)
        return store.export(run)


def test_prediction_stands_beside_measurement_and_the_curve(tmp_path: Path) -> None:
    text = page([chapter(filled(tmp_path / "d.db"))], title="Title")
    said = " ".join(" ".join(read(text).text).split())
    for wanted in ("pool tokens, predicted 11 (+10.0 %)", "unexplained", "10 tokens x 60 B", "Step time = 10"):
        assert wanted in said
    assert text.count("<svg") == 3
    assert "99,999" not in said


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    assert read(page([chapter(filled(tmp_path / "d.db"))], title="Title")).loaded == []


def test_what_a_run_contains_is_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    text = page([chapter(filled(tmp_path / "d.db", model=evil, invalid=evil))], title=evil)
    assert "<script" not in text
    assert evil in "".join(read(text).text)


def test_a_run_that_cannot_be_explained_says_why(tmp_path: Path) -> None:
    text = page([chapter(filled(tmp_path / "d.db", invalid="the server restarted"))], title="Title")
    said = " ".join("".join(read(text).text).split())
    assert "Not explained: no valid point" in said
    assert "the server restarted" in said
    assert not re.search(r"<svg", text)


def test_what_cannot_be_written_whole_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    (tmp_path / ".report.html.part").mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        write_page([], title="Title", path=path)
    assert path.read_text() == "before"


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"report\.html: cannot be written"):
        write_page([], title="Title", path=tmp_path / "no" / "report.html")
