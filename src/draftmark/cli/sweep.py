"""`draftmark sweep`: measure a running server at each depth."""

import sys
from pathlib import Path

import typer

from draftmark.cli import sweep_options as options
from draftmark.cli.options import JsonOption, StoreOption, open_store
from draftmark.cli.resuming import inherited, require_same_server
from draftmark.cli.sweeping import Wanted, run
from draftmark.errors import BadInput


def sweep(
    context: typer.Context,
    url: options.Url = None,
    depths: options.Depths = "1k,2k,4k,8k",
    output: options.Output = "32",
    concurrency: options.Concurrency = "1",
    rate: options.Rate = None,
    requests: options.Requests = 20,
    mode: options.Mode = "cold",
    repeats: options.Repeats = 3,
    max_repeats: options.MaxRepeats = None,
    precision: options.Precision = 0.02,
    point_time: options.PointTime = 600.0,
    timeout: options.Timeout = 900.0,
    warm_up: options.WarmUp = 1,
    content: options.Content = "code",
    text: options.Texts = None,
    tokenizer: options.Tokenizer = None,
    seed: options.Seed = None,
    model: options.Model = None,
    api: options.Api = "auto",
    api_key: options.ApiKey = None,
    insecure: options.Insecure = False,
    sanity: options.Sanity = False,
    stall: options.Stall = 60.0,
    log: options.Log = None,
    resume: options.Resume = None,
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

    wanted = Options(
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
    check_options(wanted)
    if log is not None and not log.is_file():
        raise BadInput("there is no such file", place=f"--log {log}", remedy="name the file the engine logs to")
    with open_store(store) as opened:
        run(
            opened,
            Wanted(url=url, depths=asked, options=wanted, log=log, resume=resume, store=store, json=json),
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
