"""One HTML page to hand on: it stands alone, with its plots, its tables and where every number came from."""

import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from draftmark import __version__
from draftmark.errors import BadInput
from draftmark.explain import Explanation, explain_run
from draftmark.ledger import Difference, Entry, Ledger, compare
from draftmark.model import Model
from draftmark.physics.figures import figures
from draftmark.physics.statistics import Median
from draftmark.report import plots, quantities
from draftmark.report.explain import sentences
from draftmark.report.findings import evidence_line, remedy_line
from draftmark.sample import Point
from draftmark.store import RunExport, TrialRecord


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its explanation, which is None where no valid point allows one; `why_not` then says so."""

    export: RunExport
    explanation: Explanation | None
    why_not: str = ""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One account on the page: both sides and the reasons given for each."""

    difference: Difference
    predicted_why: str
    observed_why: str


def chapter(export: RunExport, *, model: Model | None = None, gigabytes_per_second: float | None = None) -> Chapter:
    """One run, explained where its points allow it."""
    try:
        explained = explain_run(export, model=model, gigabytes_per_second=gigabytes_per_second)
    except ValueError as error:
        return Chapter(export=export, explanation=None, why_not=str(error))
    return Chapter(export=export, explanation=explained)


def write_page(chapters: Sequence[Chapter], *, title: str, path: Path) -> None:
    """Write the page to a file.

    Raises:
        BadInput: the file cannot be written.
    """
    text = page(chapters, title=title)
    try:
        write_whole(path, text)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror}", place=str(path), remedy="choose another --output"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Write all of a file or leave what was there: first beside it, then in its place. Raises OSError."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def page(chapters: Sequence[Chapter], *, title: str) -> str:
    """The whole page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    for name in ("size", "count", "duration", "per_second", "bandwidth", "share", "signed_size"):
        environment.filters[name] = getattr(quantities, name)
    environment.filters["moment"] = _moment
    environment.filters["median"] = _median
    environment.filters["remedy"] = remedy_line
    environment.filters["evidence"] = evidence_line
    template = environment.from_string(files("draftmark.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        version=__version__,
        chapters=chapters,
        ledger_rows=ledger_rows,
        pool_error=pool_error,
        figures=figures,
        drawings=drawings,
        duration=quantities.duration,
        per_second=quantities.per_second,
        ratio=lambda value: f"{value:.2f}",
        measured_points=measured_points,
        sentences=sentences,
    )


def ledger_rows(trial: TrialRecord) -> tuple[LedgerRow, ...]:
    """Predicted beside observed memory of the worst rank, account by account; empty where one side is missing."""
    if not trial.predicted or not trial.observed:
        return ()
    predicted, observed = trial.predicted[0], trial.observed[0]
    return tuple(
        LedgerRow(difference=d, predicted_why=_why(predicted, d.account), observed_why=_why(observed, d.account))
        for d in compare(predicted, observed)
    )


def pool_error(trial: TrialRecord) -> float | None:
    """How far the predicted pool was off, as a share of the observed one."""
    if trial.predicted_pool is None or trial.pool is None or trial.pool.tokens == 0:
        return None
    return trial.predicted_pool.tokens / trial.pool.tokens - 1


def measured_points(export: RunExport) -> tuple[Point, ...]:
    """Closed points, invalid ones included: a reader should see that there were some."""
    return tuple(record.point for record in export.points if record.finished)


def drawings(chapter: Chapter) -> tuple[Markup, ...]:
    """The plots of one chapter. They hold nothing but our own numbers, so they are not escaped."""
    if chapter.explanation is None:
        return ()
    points = measured_points(chapter.export)
    drawn = (plots.step_time, plots.decode_rate, plots.first_token)
    return tuple(Markup(draw(chapter.explanation, points)) for draw in drawn)


def _why(ledger: Ledger, account: str) -> str:
    entries: list[Entry] = [entry for entry in ledger.entries if entry.account == account]
    return "; ".join(entry.why for entry in entries)


def _median(estimate: Median | None, form: Callable[[float], str]) -> Markup:
    """A median over its 95 % interval; what `form` writes of numbers needs no escaping."""
    if estimate is None:
        return Markup(quantities.UNKNOWN)
    if estimate.low is None or estimate.high is None:
        return Markup(form(estimate.value))
    return Markup(
        f'{form(estimate.value)}<br><small class="soft">{form(estimate.low)} to {form(estimate.high)}</small>'
    )


def _moment(value: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
