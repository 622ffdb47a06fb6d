"""A run that is gone on with: what it was begun with, and the command that does it."""

import shlex
from typing import TYPE_CHECKING

import typer

from draftmark.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from draftmark.store import Store

_NOT_INHERITED = {"seed", "api_key", "store", "json", "resume"}
"""The same seed would draw prompts that a server may have cached; the rest is the command's and not the run's."""
_KEY = "--api-key"


def inherited(context: typer.Context, store: "Store", run: int) -> dict[str, object]:
    """Options that the run was begun with, by the names of the command's parameters.

    Raises:
        BadInput: there is no such run, or it is none of this command.
    """
    arguments = store.run(run).arguments
    if arguments[:1] != (context.info_name,):
        raise BadInput(
            f"run {run} was not begun by `draftmark {context.info_name}`",
            place="--resume",
            remedy="`draftmark runs` lists what each run was",
        )
    values, _, _ = context.command.make_parser(context).parse_args(list(arguments[1:]))
    return {name: value for name, value in values.items() if name not in _NOT_INHERITED}


def require_same_server(run: int, before: object, now: str) -> None:
    """Raise BadInput where a run would be gone on with on another server."""
    if _base(str(before)) != _base(now):
        raise BadInput(
            f"run {run} was measured at {before}, not {now}",
            place="--resume",
            remedy="leave --url out, or begin a new run",
        )


def _base(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1").replace("//localhost", "//127.0.0.1")


def public(arguments: "Sequence[str]") -> tuple[str, ...]:
    """The arguments without the key, which is not kept."""
    kept: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == _KEY:
            next(waiting, None)
        elif not argument.startswith(f"{_KEY}="):
            kept.append(argument)
    return tuple(kept)


def command(run: int, arguments: "Sequence[str]", *, resumed: bool, store: "Path | None") -> str:
    """What goes on with a run, as it is typed; a key that was given is asked for again."""
    words: Iterable[str] = public(arguments)
    if not resumed:
        words = ["sweep", "--resume", str(run), *(("--store", str(store)) if store is not None else ())]
    key = f" {_KEY} KEY" if len(public(arguments)) < len(arguments) else ""
    return f"draftmark {shlex.join(words)}{key}"
