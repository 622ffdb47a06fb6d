"""What a server that is already running says of itself, from its endpoints, this machine's GPUs and its log."""

from pathlib import Path

import httpx
import msgspec

from draftmark.configuration import EngineName
from draftmark.engines import address, known
from draftmark.engines.lines import LineCutter
from draftmark.engines.probe import probe
from draftmark.errors import BadInput
from draftmark.ledger import Ledger, Pool
from draftmark.machine.memory import Usage, gpus_now
from draftmark.observation import Observation, ServerState
from draftmark.serve import records

_LOCAL = ("127.0.0.1", "localhost", "::1")


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A running server. What its engine does not tell is None or empty."""

    state: ServerState
    pool: Pool | None
    ledgers: tuple[Ledger, ...] = ()
    gpus: tuple[Usage, ...] = ()
    log: str | None = None


def inspect(url: str, log: str | None = None) -> Inspection:
    """Look at a running server without touching it.

    Args:
        url: where it answers.
        log: its log; found by itself where Draftmark started the engine.

    Raises:
        BadInput: nothing answers, or what answers is no such server, or the log cannot be read.
    """
    url = url.rstrip("/")
    try:
        host = address.split(url).hostname
    except ValueError as problem:
        raise BadInput(str(problem), place=url, remedy="write it as in http://127.0.0.1:30000") from problem
    state = _state(url)
    record = records.find(url)
    if log is None and record is not None:
        log = record.log
    gpus = gpus_now() if host in _LOCAL else ()
    name = _known(state.engine)
    if name is None:
        return Inspection(state=state, pool=_pool(state), gpus=gpus, log=log)
    adapter = known.adapter(name)
    seen = (*state.observations, *(_read(log, name) if log is not None else ()))
    return Inspection(
        state=state, pool=adapter.pool(seen) or _pool(state), ledgers=adapter.ledgers(seen), gpus=gpus, log=log
    )


def _state(url: str) -> ServerState:
    try:
        with httpx.Client(timeout=10.0) as client:
            state = probe(client, url)
    except httpx.HTTPError as error:
        raise BadInput(f"no server answers ({error})", place=url, remedy="check the address and the port") from error
    if state is None:
        raise BadInput("what answers there is no inference server", place=url, remedy="give the URL without a path")
    return state


def _known(engine: str | None) -> EngineName | None:
    return next((name for name in known.NAMES if name == engine), None)


def _pool(state: ServerState) -> Pool | None:
    return None if state.pool_tokens is None else Pool(tokens=state.pool_tokens, page=state.page)


def _read(log: str, engine: EngineName) -> tuple[Observation, ...]:
    reader, cutter = known.adapter(engine).reader(log), LineCutter()
    seen: list[Observation] = []
    read = 0
    try:
        with Path(log).open("rb") as stream:
            while block := stream.read(1 << 20):
                lines = cutter.feed(block)
                for number, line in enumerate(lines, read + 1):
                    seen += reader.feed(line, number)
                read += len(lines)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=log, remedy="name the server's log file") from error
    return tuple(seen)
