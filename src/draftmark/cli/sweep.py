"""`draftmark sweep`: measure a running server at each depth."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from draftmark.cli.options import JsonOption, StoreOption, open_store
from draftmark.cli.resuming import inherited, require_same_server
from draftmark.cli.sweeping import Wanted, run
from draftmark.errors import BadInput

_MEASURE = "Measuring"
_PROMPTS = "Prompts"
_SERVER = "Server"


def sweep(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            help="The server, as in http://127.0.0.1:8000. [required, save with --resume]",
            rich_help_panel=_SERVER,
            show_default=False,
        ),
    ] = None,
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
    max_repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most repeats a depth: 10, or --repeats if more.", rich_help_panel=_MEASURE, show_default=False
        ),
    ] = None,
    precision: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Repeat until the step time's interval is within this share of it.",
            rich_help_panel=_MEASURE,
        ),
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
        int | None,
        typer.Option(
            help="Go on with this run, with its server, depths and options unless given anew; what it finished is not"
            " measured again.",
            metavar="RUN",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a running server at each depth: TTFT, prefill and decode speed, short depths first."""
    if resume is not None and context.default_map is None:
        _again(context, store, resume)
        return
    if url is None:
        raise BadInput("no server is named", place="--url", remedy="write it as in --url http://127.0.0.1:8000")
    if resume is not None and context.default_map is not None:
        require_same_server(resume, context.default_map["url"], url)
    from draftmark.sweep import Options
    from draftmark.sweep.given import check_depths, check_options
    from draftmark.units import Tokens

    options = Options(
        output=Tokens(_one(_tokens(output, "--output"), "--output")),
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
        most_repeats=max(10, repeats) if max_repeats is None else max_repeats,
        precision=precision,
        point_seconds=point_time,
        first_patience=timeout,
        stall=stall,
        sanity=sanity,
        api_key=api_key,
        insecure=insecure,
    )
    asked = _tokens(depths, "--depths")
    check_depths(asked)
    check_options(options)
    if log is not None and not log.is_file():
        raise BadInput("there is no such file", place=f"--log {log}", remedy="name the file the engine logs to")
    with open_store(store) as opened:
        run(
            opened,
            Wanted(url=url, depths=asked, options=options, log=log, resume=resume, store=store, json=json),
        )


def _again(context: typer.Context, store: Path | None, resume: int) -> None:
    """The command once more, over what the run was begun with in the place of the defaults."""
    with open_store(store) as opened:
        before = inherited(context, opened, resume)
    name = context.info_name or "sweep"
    arguments = sys.argv[sys.argv.index(name) + 1 :]
    with context.command.make_context(name, arguments, parent=context.parent, default_map=before) as again:
        again.command.invoke(again)


def _one(numbers: tuple[int, ...], flag: str) -> int:
    if len(numbers) != 1:
        raise BadInput("several are given", place=flag, remedy="give one; only depths and loads are swept")
    return numbers[0]


def _tokens(text: str, flag: str) -> tuple[int, ...]:
    from draftmark.units import parse_tokens

    try:
        return tuple(parse_tokens(part) for part in text.split(","))
    except ValueError as problem:
        raise BadInput(str(problem), place=flag, remedy="separate several by commas") from None


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or min(rates) <= 0:
        raise BadInput(f"{text!r} is not a list of rates above 0", place="--rate", remedy="write 2 or 0.5,1,2")
    return rates


def _numbers(text: str, flag: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise BadInput(f"{text!r} is not a list of whole numbers above 0", place=flag, remedy="write 1 or 1,4,16")
    return tuple(int(part) for part in parts)
