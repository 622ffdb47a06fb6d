"""One sweep from the command line: run it, show what came of it however it ended, and say how to go on."""

import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from draftmark.cli.options import show, show_json
from draftmark.cli.progress import progress
from draftmark.cli.resuming import command, public
from draftmark.errors import DraftmarkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmark.diagnose import Diagnosis
    from draftmark.sample import Point
    from draftmark.store import Store
    from draftmark.sweep import Options, Sweep
    from draftmark.sweep.session import Session


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    url: str
    depths: tuple[int, ...]
    options: "Options"
    log: Path | None
    resume: int | None
    store: Path | None
    json: bool


def run(store: "Store", wanted: Wanted) -> None:
    """Sweep into the store; whatever ends it, a full disk too, what was kept is shown.

    Raises:
        CheckFailed: no point is valid.
        EngineFailed: the server was lost.
        BadInput: what was asked cannot be measured.
    """
    from draftmark.sweep.session import Session, run_sweep

    session = Session(store=store, arguments=public(sys.argv[1:]), resume=wanted.resume)
    with _ends_by_signal() as came:
        try:
            with progress(shown=not wanted.json) as tell:
                result = run_sweep(wanted.url, wanted.depths, wanted.options, session=session, on_event=tell)
        except KeyboardInterrupt:
            _so_far(store, session, wanted, "interrupted")
            raise typer.Exit(128 + (came[0] if came else signal.SIGINT)) from None
        except DraftmarkError as problem:
            if session.opened:
                _so_far(store, session, wanted, str(problem))
            raise
    diagnosis = _diagnosed(result, session, wanted.log)
    _show(result, diagnosis, run=session.run, json=wanted.json)
    failure = _problem(result, wanted, _go_on(session, wanted))
    if failure is not None:
        raise failure


@contextmanager
def _ends_by_signal() -> "Iterator[list[int]]":
    """A polite end (SIGTERM) and a closed terminal (SIGHUP) are Ctrl-C here; the list holds which of them came."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield came
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _so_far(store: "Store", session: "Session", wanted: Wanted, why: str) -> None:
    """What was kept until the sweep was ended from outside, and how to go on."""
    if session.run is None:
        print(f"draftmark: {why} before anything was measured", file=sys.stderr)
        return
    points = tuple(record.point for record in store.points(session.run))
    if wanted.json:
        show_json({"run": session.run, "points": _rows(points), "stopped": why})
    elif points:
        from draftmark.report.sweep import points as table

        show(table(points))
    said = "interrupted: " if why == "interrupted" else ""
    print(f"{said}run {session.run} is kept; go on with `{_go_on(session, wanted)}`", file=sys.stderr)


def _go_on(session: "Session", wanted: Wanted) -> str:
    assert session.run is not None, "a run is open from its start on"
    return command(session.run, sys.argv[1:], resumed=session.resumed, store=wanted.store)


def _diagnosed(result: "Sweep", session: "Session", log: Path | None) -> "Diagnosis | None":
    """What the engine's log says of its end, kept with the run."""
    from draftmark.sweep.session import why_lost

    if result.stopped is None or session.run is None:
        return None
    engine = session.engine
    if log is None and engine is not None and engine.log is not None:
        log = Path(engine.log)
    diagnosis = why_lost(log, engine.configuration if engine else None) if log else None
    if diagnosis is not None:
        session.store.add_findings(session.run, diagnosis.findings, trial=session.trial)
    return diagnosis


def _problem(result: "Sweep", wanted: Wanted, go_on: str) -> DraftmarkError | None:
    """What the exit code says. A request that the server refuses is refused again: there is nothing to go on with."""
    from draftmark.errors import BadInput, CheckFailed, EngineFailed

    if result.stopped is not None and result.refused:
        return BadInput(
            f"the server refuses the request: {result.stopped}",
            place=wanted.url,
            remedy="finished points are kept; ask for what it accepts (--depths, --output, --api)",
        )
    if result.stopped is not None:
        return EngineFailed(
            f"the sweep stopped: {result.stopped}",
            place=wanted.url,
            remedy=f"finished points are kept; go on with `{go_on}`",
        )
    if result.valid:
        return None
    return CheckFailed(
        f"no point is valid: {result.points[0].invalid}",
        place=wanted.url,
        remedy=f"when that is mended, measure them again with `{go_on}`",
    )


def _rows(points: "tuple[Point, ...]") -> list[dict[str, object]]:
    from draftmark.physics.figures import figures

    return [{"point": point, "figures": figures(point)} for point in points]


def _show(result: "Sweep", diagnosis: "Diagnosis | None", *, run: int | None, json: bool) -> None:
    if json:
        show_json(
            {
                "run": run,
                "server": result.state,
                "dialect": result.dialect,
                "seed": result.seed,
                "overhead": result.overhead,
                "points": _rows(result.points),
                "refusals": result.refusals,
                "stopped": result.stopped,
                "diagnosis": diagnosis,
            }
        )
        return
    from draftmark.report.sweep import sweep as table

    show(table(result))
    if diagnosis is not None:
        from draftmark.report.diagnose import diagnosis as findings

        show(findings(diagnosis))
    if result.valid:
        show(f"Run {run} is kept; {_what_next(result)}")


def _what_next(result: "Sweep") -> str:
    """Explain reads points of streams whose tokens are counted; others can be shown."""
    from draftmark.physics.figures import figures

    if any(point.rate is None and figures(point).decode_rate is not None for point in result.valid):
        return "`draftmark explain` says why decode costs what it costs."
    return "`draftmark report` puts it on a page."
