"""`draftmark sweep`: measure a running server at each depth."""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store, show, show_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftmark.diagnose import Diagnosis
    from draftmark.sample import Point
    from draftmark.store import Store
    from draftmark.sweep import Event, Options, Sweep

_MEASURE = "Measuring"
_PROMPTS = "Prompts"
_SERVER = "Server"


def sweep(
    url: Annotated[str, typer.Option(help="The server, as in http://127.0.0.1:8000.", rich_help_panel=_SERVER)],
    depths: Annotated[str, typer.Option(help="Prompt tokens, increasing.", metavar="1k,2k,4k")] = "1k,2k,4k,8k",
    output: Annotated[str, typer.Option(help="Tokens of output a request.", metavar="TOKENS")] = "32",
    concurrency: Annotated[str, typer.Option(help="Requests at once; several are swept in turn.")] = "1",
    rate: Annotated[
        str | None, typer.Option(help="Requests a second that come whatever happens, instead.", metavar="0.5,1,2")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests at each rate.")] = 20,
    mode: Annotated[
        Literal["cold", "warm"],
        typer.Option(help="cold: every prompt is new. warm: one prompt grows, and its prefix is reused."),
    ] = "cold",
    repeats: Annotated[int, typer.Option(min=1, help="Least repeats a depth.", rich_help_panel=_MEASURE)] = 3,
    max_repeats: Annotated[int, typer.Option(min=1, help="Most repeats a depth.", rich_help_panel=_MEASURE)] = 10,
    precision: Annotated[
        float, typer.Option(min=0.0, help="Repeat until the step time is known so well.", rich_help_panel=_MEASURE)
    ] = 0.02,
    point_time: Annotated[
        float, typer.Option(help="Seconds after which a depth is not repeated again.", rich_help_panel=_MEASURE)
    ] = 600.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds the first depth's first token may take.", rich_help_panel=_MEASURE)
    ] = 900.0,
    warm_up: Annotated[int, typer.Option(min=0, help="Requests before the first depth.", rich_help_panel=_MEASURE)] = 1,
    content: Annotated[
        Literal["code", "prose"], typer.Option(help="Of what ships with Python.", rich_help_panel=_PROMPTS)
    ] = "code",
    text: Annotated[
        list[Path] | None, typer.Option(help="Your own text instead; may be repeated.", rich_help_panel=_PROMPTS)
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="tokenizer.json, for a server without /tokenize.", rich_help_panel=_PROMPTS),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Drawn where not given, so that no run meets its own cache.", min=0, rich_help_panel=_PROMPTS
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="One of the server's models.", rich_help_panel=_SERVER)] = None,
    api: Annotated[
        Literal["auto", "completions", "chat"], typer.Option(help="Which API is used.", rich_help_panel=_SERVER)
    ] = "auto",
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.", rich_help_panel=_SERVER)
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not check the certificate.", rich_help_panel=_SERVER)
    ] = False,
    sanity: Annotated[
        bool, typer.Option("--sanity", help="Also ask for a planted fact at each depth.", rich_help_panel=_MEASURE)
    ] = False,
    stall: Annotated[float, typer.Option(help="Seconds that a stream may pause.", rich_help_panel=_MEASURE)] = 60.0,
    log: Annotated[
        Path | None,
        typer.Option(
            help="The engine's log, to say why it died. Known where draftmark started it.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        int | None, typer.Option(help="Go on with this run: what it finished is not measured again.", metavar="RUN")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a running server at each depth: TTFT, prefill and decode speed, short depths first."""
    from draftmark.sweep import Options
    from draftmark.units import Tokens

    options = Options(
        output=Tokens(_tokens(output, "--output")[0]),
        concurrency=_numbers(concurrency, "--concurrency"),
        rates=_rates(rate) if rate is not None else (),
        requests=requests,
        mode=mode,
        api=api,
        model=model,
        content=content,
        texts=tuple(text or ()),
        tokenizer=tokenizer,
        seed=seed,
        warm_up=warm_up,
        repeats=repeats,
        most_repeats=max(max_repeats, repeats),
        precision=precision,
        point_seconds=point_time,
        first_patience=timeout,
        stall=stall,
        sanity=sanity,
        api_key=api_key,
        insecure=insecure,
    )
    with open_store(store) as opened:
        _run(opened, url, _tokens(depths, "--depths"), options, log=log, resume=resume, json=json)


def _run(
    store: "Store",
    url: str,
    depths: tuple[int, ...],
    options: "Options",
    *,
    log: Path | None,
    resume: int | None,
    json: bool,
) -> None:
    """Sweep into the store; whatever ends it, what was measured is kept and shown."""
    from draftmark.errors import EngineFailed
    from draftmark.sweep.session import Session, run_sweep, why_lost

    session = Session(store=store, arguments=tuple(sys.argv[1:]), resume=resume)
    try:
        with _progress(shown=not json) as progress:
            result = run_sweep(url, depths, options, session=session, on_event=progress)
    except KeyboardInterrupt:
        if session.run is not None:
            print(f"interrupted: finished points are kept; go on with --resume {session.run}", file=sys.stderr)
        raise
    diagnosis = None
    if result.stopped is not None and session.run is not None:
        engine = session.engine
        if log is None and engine is not None and engine.log is not None:
            log = Path(engine.log)
        diagnosis = why_lost(log, engine.configuration if engine else None) if log else None
        if diagnosis is not None:
            store.add_findings(session.run, diagnosis.findings, trial=session.trial)
    _show(result, diagnosis, run=session.run, json=json)
    if result.stopped is not None:
        raise EngineFailed(
            f"the sweep stopped: {result.stopped}",
            place=url,
            remedy=f"finished points are kept; go on with --resume {session.run}",
        )


def _show(result: "Sweep", diagnosis: "Diagnosis | None", *, run: int | None, json: bool) -> None:
    if json:
        from draftmark.physics.figures import figures

        rows = [{"point": point, "figures": figures(point)} for point in result.points]
        show_json(
            {
                "run": run,
                "server": result.state,
                "dialect": result.dialect,
                "seed": result.seed,
                "overhead": result.overhead,
                "points": rows,
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
    show(f"Run {run} is kept; `draftmark explain` says why decode costs what it costs.")


@contextmanager
def _progress(*, shown: bool) -> "Iterator[Callable[[Event], None]]":
    """Where events go: to a growing table or lines on standard error, or nowhere."""
    if not shown:
        yield lambda _: None
        return
    progress = _Progress()
    try:
        yield progress
    finally:
        progress.close()


class _Progress:
    """The table as it grows on a terminal; a line a step on standard error elsewhere.

    Drawn between batches alone: drawing while streams are open would delay their stamps.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._points: dict[tuple[object, ...], Point] = {}
        self._line = ""
        self._live = Live(console=self._console, transient=True, refresh_per_second=4, auto_refresh=False)
        if self._console.is_terminal:
            self._live.start()

    def __call__(self, event: "Event") -> None:
        from draftmark.report import sweep as report
        from draftmark.sweep import Kept, Sending

        if isinstance(event, Kept):
            point = event.point
            self._points[point.concurrency, point.rate, point.asked] = point
        elif isinstance(event, Sending):
            self._line = report.sending(event)
        else:
            self._console.print(report.started(event))
        if self._console.is_terminal:
            from rich.console import Group

            self._live.update(Group(report.points(tuple(self._points.values())), self._line), refresh=True)
        elif isinstance(event, Sending):
            self._console.print(self._line)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()


def _tokens(text: str, flag: str) -> tuple[int, ...]:
    from draftmark.errors import BadInput
    from draftmark.units import parse_tokens

    try:
        return tuple(parse_tokens(part) for part in text.split(","))
    except ValueError as problem:
        raise BadInput(str(problem), place=flag, remedy="separate several by commas") from None


def _rates(text: str) -> tuple[float, ...]:
    from draftmark.errors import BadInput

    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or min(rates) <= 0:
        raise BadInput(f"{text!r} is not a list of rates above 0", place="--rate", remedy="write 2 or 0.5,1,2")
    return rates


def _numbers(text: str, flag: str) -> tuple[int, ...]:
    from draftmark.errors import BadInput

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise BadInput(f"{text!r} is not a list of whole numbers above 0", place=flag, remedy="write 1 or 1,4,16")
    return tuple(int(part) for part in parts)
