"""The sweep: short depths first, every point kept before the next begins, and a stop when the server is lost."""

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Final

import httpx

from draftmark.errors import BadInput
from draftmark.sample import Point
from draftmark.sweep.client import Client, tls_context
from draftmark.sweep.options import Event, Options, Sweep
from draftmark.sweep.overhead import measure_overhead
from draftmark.sweep.points import Measurement, plan, text
from draftmark.sweep.prompts import LEAST_TOKENS
from draftmark.sweep.server import open_server, server_target, while_it_answers

DEFAULTS: Final = Options()


def sweep(
    url: str,
    depths: tuple[int, ...],
    options: Options = DEFAULTS,
    *,
    sink: Callable[[Point], None],
    on_event: Callable[[Event], None] = lambda _: None,
    finished: tuple[Point, ...] = (),
    alive: Callable[[], bool] | None = None,
) -> Sweep:
    """Measure a running server at each depth, shortest first, for each concurrency.

    Args:
        url: the server, with or without /v1.
        depths: prompt tokens, increasing.
        options: how.
        sink: given the point after each of its batches, `open` until the last; the next request is sent when it has
            returned, so what it wrote is what a crash leaves.
        on_event: told of progress.
        finished: points of an interrupted run, which are not measured again unless they are invalid or open.
        alive: says whether the server's process, where it is ours, still runs.

    Raises:
        BadInput: the URL, the depths, the model or the texts cannot be used.
        EngineFailed: the server does not manage even a few tokens.
    """
    check_depths(depths)
    target, base = server_target(url, options)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed

    async def whole() -> Sweep:
        client = Client(target)
        try:
            server = await open_server(http, client, base, options)
            overhead = await measure_overhead()
            with while_it_answers(base):
                planned = plan(server, depths, options)
                measurement = Measurement(
                    server,
                    options,
                    planned,
                    text(options, planned, seed),
                    overhead,
                    seed=seed,
                    sink=sink,
                    on_event=on_event,
                    alive=alive,
                )
            return await measurement.run(finished)
        finally:
            client.close()

    verify = tls_context(target) or True
    with httpx.Client(headers=dict(target.headers), timeout=60.0, verify=verify, trust_env=False) as http:
        return asyncio.run(whole())


def check_depths(depths: tuple[int, ...]) -> None:
    """Raise BadInput unless there are depths, each large enough and larger than the one before."""
    if not depths:
        raise BadInput("no depths are given", place="--depths", remedy="write them as in --depths 1k,4k,16k")
    if depths[0] < LEAST_TOKENS:
        raise BadInput(f"{depths[0]} tokens are too few", place="--depths", remedy=f"begin at {LEAST_TOKENS} or more")
    for before, depth in itertools.pairwise(depths):
        if depth <= before:
            raise BadInput(
                f"depths must increase, and {depth:,} follows {before:,}",
                place="--depths",
                remedy="order them, each once",
            )
