"""Starts that somebody else made, taken in from their logs: what was asked for, what came of it, what was predicted."""

from pathlib import Path
from typing import Final

import msgspec

from draftmark import __version__
from draftmark.configuration import Configuration, EngineName
from draftmark.diagnose.log import Start, read
from draftmark.engines import known, sglang_flags, vllm_flags
from draftmark.engines.adapter import Pasted
from draftmark.engines.lines import clean
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.ledger import Ledger, Pool
from draftmark.model import Model
from draftmark.observation import Observation, Source
from draftmark.planner import Plan
from draftmark.serve.contradiction import refuse_contradiction
from draftmark.store import Store
from draftmark.trial import Environment

_FROM_LOG: Final = {"sglang": ("server_args=", sglang_flags.from_log), "vllm": ("args: {", vllm_flags.from_log)}
_ARGUMENTS_WITHIN: Final = 60
"""Lines after the first of a start within which an engine has listed its arguments."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One start out of a log."""

    log: str
    engine: EngineName
    asked: Pasted
    """As the log lists it; a pasted command may say more."""
    observations: tuple[Observation, ...]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A start's memory as its log states it, beside its prediction."""

    trial: int
    again: bool
    """It was in the store before."""
    plan: Plan
    ledgers: tuple[Ledger, ...]
    pool: Pool


def look(log: Path) -> Seen:
    """The last start in a log that came as far as its pool.

    Raises:
        BadInput: the log cannot be read, is of no engine that is known, or has no such start.
    """
    try:
        with log.open("rb") as stream:
            starts = read(stream, str(log))
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=str(log), remedy="name the engine's log") from error
    for start in reversed(starts):
        if start.engine is not None and known.adapter(start.engine).pool(tuple(start.observations)) is not None:
            seen = tuple(start.observations)
            return Seen(log=str(log), engine=start.engine, asked=_asked(log, start, start.engine), observations=seen)
    raise BadInput(
        "no start in it came as far as its pool", place=str(log), remedy="`draftmark diagnose LOG` says why one died"
    )


def keep(store: Store, seen: Seen, plan: Plan, model: Model, machine: Machine, arguments: tuple[str, ...]) -> Observed:
    """Lay a start beside its prediction and keep both, for the planner to learn from; the same start is kept once.

    Raises:
        BadInput: the log says too little of memory, or is of another model.
    """
    adapter = known.adapter(seen.engine)
    stated = seen.observations
    if all(one.quantity != "capacity" for one in stated):
        source = Source(place=f"the catalogue's {machine.device.name}", text=machine.device.source)
        capacity = Observation(quantity="capacity", value=machine.device.memory, unit="bytes", source=source)
        stated = (*stated, capacity)
    ledgers, pool = adapter.ledgers(stated), adapter.pool(stated)
    if pool is None or not ledgers:
        raise BadInput("it does not say where the memory went", place=seen.log, remedy="give the engine's whole log")
    refuse_contradiction(seen.observations, model, plan, seen.log)
    before = next((one for one in store.trials() if one.log == seen.log and one.observed == ledgers), None)
    if before is not None:
        return Observed(trial=before.id, again=True, plan=plan, ledgers=ledgers, pool=pool)
    environment = Environment(
        draftmark=__version__,
        engine=seen.engine,
        engine_version=plan.configuration.version,
        model=model.name,
        device=machine.device.name,
        device_count=machine.count,
    )
    run = store.begin_run("observe", arguments, environment)
    store.describe_run(run, model=model)
    trial = store.begin_trial(run, plan.configuration, environment, seen.log)
    store.set_prediction(trial, plan.ledgers, plan.pool)
    store.set_observed(trial, ledgers, pool)
    store.add_observations(trial, stated)
    store.end_trial(trial)
    store.end_run(run, "done")
    return Observed(trial=trial, again=False, plan=plan, ledgers=ledgers, pool=pool)


def _asked(log: Path, start: Start, engine: EngineName) -> Pasted:
    """What was asked for: the list of arguments where the engine prints one, else the numbers that it stated."""
    version = next((str(one.value) for one in start.observations if one.quantity == "version"), None)
    asked = Pasted(configuration=_stated(start, engine))
    listed = _listed(log, start, engine)
    if listed is not None and engine in _FROM_LOG:
        asked = _FROM_LOG[engine][1](listed)
    whole = msgspec.structs.replace(asked.configuration, version=version)
    return msgspec.structs.replace(asked, configuration=whole)


def _listed(log: Path, start: Start, engine: EngineName) -> str | None:
    first = next((one.source.line for one in start.observations if one.quantity == "start"), None)
    if first is None or engine not in _FROM_LOG:
        return None
    mark = _FROM_LOG[engine][0]
    with log.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            if number >= first and mark.encode() in raw:
                return clean(raw.rstrip(b"\n"))
            if number > first + _ARGUMENTS_WITHIN:
                break
    return None


def _stated(start: Start, engine: EngineName) -> Configuration:
    """From single numbers: the embedded engine, and logs without their first lines."""
    texts = {one.quantity: str(one.value) for one in reversed(start.observations)}
    numbers = {one.quantity: one.value for one in reversed(start.observations) if not isinstance(one.value, str)}
    fields = {
        "model": texts.get("model", ""),
        "dtype": texts.get("dtype", "").removeprefix("torch.") or None,
        "memory_fraction": numbers.get("memory_fraction"),
        "chunk": numbers.get("chunk"),
        "page": numbers.get("page"),
        "context": numbers.get("context_length"),
        "max_running": numbers.get("max_running"),
    }
    return msgspec.convert({"engine": engine, **fields}, Configuration)
