"""The sweep: short depths first, every point kept before the next begins, and a stop when the server is lost."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from draftmark.errors import BadInput
from draftmark.sample import Point
from draftmark.sweep.bounded import bounded_client
from draftmark.sweep.client import Client, tls_context
from draftmark.sweep.files import allow_open, require_open
from draftmark.sweep.given import check_depths, check_options
from draftmark.sweep.options import Event, Options, Sweep
from draftmark.sweep.overhead import measure_overhead
from draftmark.sweep.points import Measurement, Plan, plan
from draftmark.sweep.prompts import LEAST_TOKENS
from draftmark.sweep.server import open_server, server_target, while_it_answers
from draftmark.sweep.text import text_for

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
    check_options(options)
    require_open(max(options.concurrency))
    if options.rates:
        allow_open(options.requests)
    target, base = server_target(url, options)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed

    async def whole() -> Sweep:
        client = Client(target)
        try:
            server = await open_server(http, client, base, options, tell=on_event)
            overhead = await measure_overhead()
            with while_it_answers(base):
                planned = plan(server, depths, options)
                require_one(planned)
                corpus, density = text_for(options, planned.deepest, server.counter, seed=seed)
                measurement = Measurement(
                    server,
                    options,
                    planned,
                    corpus,
                    overhead,
                    density=density,
                    seed=seed,
                    sink=sink,
                    on_event=on_event,
                    alive=alive,
                )
            return await measurement.run(finished)
        finally:
            client.close()

    with bounded_client(dict(target.headers), verify=tls_context(target) or True) as http:
        return asyncio.run(whole())


def require_one(planned: Plan) -> None:
    """Raise BadInput, which names the largest depth that fits, where nothing of the plan can be sent."""
    if planned.cells:
        return
    nearest = max(planned.refusals, key=lambda refused: refused.largest or 0)
    fits = nearest.largest or 0
    remedy = (
        f"the largest that fits is {fits:,}" if fits >= LEAST_TOKENS else "no depth fits: lower --output or the load"
    )
    raise BadInput(f"no depth can be sent: {nearest.reason}", place="--depths", remedy=remedy)
