"""The embedded engine (`python -m draftmark.embedded`): its flags and its /server_info."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import httpx
import msgspec

from draftmark import __version__
from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.engines.adapter import Capabilities, Command, LogReader, Pasted, Requirement
from draftmark.engines.answer import decoded
from draftmark.engines.embedded_log import Reader
from draftmark.errors import BadInput
from draftmark.ledger import Entry, Ledger, Pool, close
from draftmark.observation import Observation, Phase, ServerState, Source
from draftmark.units import Bytes, Tokens, parse_tokens

ENGINE: Final = "draftmark.embedded"
DTYPES: Final = ("auto", "float32", "bfloat16", "float16")

VALUED: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "--mem-fraction": ("memory_fraction", float),
    "--pool-tokens": ("pool_tokens", parse_tokens),
    "--chunk": ("chunk", parse_tokens),
    "--context": ("context", parse_tokens),
    "--max-running": ("max_running", int),
    "--dtype": ("dtype", str),
}
"""Flags that have a word in the vocabulary of all engines."""
OTHER: Final = ("--memory", "--served-model-name", "--host", "--port")
"""Flags that have none; host and port are given anew at every start."""


class Embedded:
    """Adapter of the embedded engine, which has this program's own version."""

    name: EngineName = "embedded"
    tested = (__version__, __version__)
    requirement = Requirement(
        modules=("draftmark.embedded", "torch", "transformers", "starlette", "uvicorn"),
        distribution="draftmark",
        install="pip install 'draftmark[local]'",
    )
    capabilities = Capabilities(bad_input_exit=BadInput.exit_code)

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:
        """The command that starts it.

        Raises:
            BadInput: the configuration asks for something that this engine does not have.
        """
        refuse(configuration)
        device = "cpu" if configuration.device == "cpu" else "cuda"
        argv = [python, "-m", ENGINE, "--model", configuration.model, "--device", device]
        argv += ["--host", host, "--port", str(port)]
        for flag, (field, _) in VALUED.items():
            value = getattr(configuration, field)
            if value is not None:
                argv += [flag, str(value)]
        return Command(argv=(*argv, *configuration.flags), environment=configuration.environment)

    def parse_command(self, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Pasted:
        """The configuration that a launch command asks for.

        Raises:
            BadInput: it names no model, or a flag has no value or a wrong one.
        """
        words = _after_module(argv)
        fields: dict[str, Any] = {}
        flags: list[str] = []
        unknown: list[str] = []
        while words:
            flag, value, words = _take(words)
            if flag in VALUED:
                field, read = VALUED[flag]
                fields[field] = _read(flag, value, read)
            elif flag in {"--model", "--device"}:
                fields[flag.removeprefix("--")] = _read(flag, value, str)
            elif flag in OTHER:
                flags += [flag, _read(flag, value, str)] if flag not in {"--host", "--port"} else []
            else:
                unknown += [flag] if value is None else [flag, value]
        if "model" not in fields:
            raise BadInput("the command names no model", place="--model", remedy="add --model DIR")
        configuration = Configuration(engine="embedded", flags=tuple(flags), environment=environment, **fields)
        return Pasted(configuration=configuration, not_understood=tuple(unknown))

    def reader(self, place: str) -> LogReader:
        """A reader for the log at `place`."""
        return Reader(place)

    def ledgers(self, observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
        """One ledger: weights and pool by the log's own bytes, the rest of what is not free unexplained."""
        seen = _last(observations)
        capacity, start, free = (seen.get(key) for key in (("capacity", "init"), ("free", "init"), ("free", "ready")))
        if capacity is None or start is None or free is None:
            return ()
        taken = Bytes(int(capacity.value) - int(start.value))
        before = Entry(account="context", bytes=taken, why="capacity - free before the weights were loaded")
        held = [
            Entry(account=account, bytes=Bytes(int(found.value)), why=f"line {found.source.line}: {found.source.text}")
            for account, key in HELD
            if (found := seen.get(key)) is not None
        ]
        entries = (before, *held) if taken else tuple(held)
        return (close(rank=0, capacity=Bytes(int(capacity.value)), entries=entries, free=Bytes(int(free.value))),)

    def pool(self, observations: tuple[Observation, ...]) -> Pool | None:
        """The pool as the log states it."""
        seen = _last(observations)
        tokens, size, page = (seen.get((name, "pool")) for name in ("pool_tokens", "pool_bytes", "page"))
        if tokens is None:
            return None
        return Pool(
            tokens=Tokens(int(tokens.value)),
            bytes=Bytes(int(size.value)) if size else None,
            page=Tokens(int(page.value)) if page else None,
        )

    def probe(self, client: httpx.Client, url: str) -> ServerState | None:
        """What the server says of itself at /server_info; None where it is another engine, or still loading.

        Raises:
            httpx.HTTPError: nothing answers at `url`.
        """
        place = f"{url.rstrip('/')}/server_info"
        answer = client.get(place)
        if answer.status_code != httpx.codes.OK:
            return None
        info = decoded(answer.content, Info)
        return None if info is None else info.state(url, Source(place=place))


HELD: Final[tuple[tuple[Literal["weights", "pool", "activations"], tuple[str, Phase]], ...]] = (
    ("weights", ("weights", "weights")),
    ("pool", ("pool_bytes", "pool")),
    ("activations", ("activations", "warm-up")),
)
"""Accounts of the ledger, and the observations that fill them."""


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What /server_info tells, as far as it is used. Another engine's answer does not decode."""

    engine: Literal["draftmark.embedded"]
    version: str
    served_model_name: str
    device: str
    started: float
    context_length: Tokens
    chunk: Tokens
    page: Tokens
    max_running: int
    pool_tokens: Tokens
    pool_bytes: Bytes
    bytes_per_token: Bytes
    weight_bytes: Bytes
    dtype: str

    def state(self, url: str, source: Source) -> ServerState:
        """The same in the words of all engines."""
        amounts: tuple[tuple[str, int], ...] = (
            ("pool_bytes", self.pool_bytes),
            ("bytes_per_token", self.bytes_per_token),
            ("weights", self.weight_bytes),
        )
        observations = [
            Observation(quantity=quantity, value=value, unit="bytes", source=source, rank=0, phase="ready")
            for quantity, value in amounts
        ]
        observations.append(
            Observation(quantity="dtype", value=self.dtype, unit="text", source=source, rank=0, phase="ready")
        )
        return ServerState(
            url=url,
            engine="embedded",
            version=self.version,
            models=(self.served_model_name,),
            context=self.context_length,
            pool_tokens=self.pool_tokens,
            max_running=self.max_running,
            page=self.page,
            chunk=self.chunk,
            device=self.device,
            started=self.started,
            token_ids=True,
            ignore_eos=True,
            observations=tuple(observations),
        )


def refuse(configuration: Configuration) -> None:
    """See that a configuration asks for nothing that this engine does not have.

    Raises:
        BadInput: it does; the place is the flag as this engine or `draftmark` spells it.
    """
    for flag, cause in _unserved(configuration):
        raise BadInput(f"the embedded engine {cause}", place=flag, remedy="leave it out")
    if configuration.dtype is not None and configuration.dtype not in DTYPES:
        cause = f"the embedded engine does not serve in {configuration.dtype!r}"
        raise BadInput(cause, place="--dtype", remedy=f"choose one of {', '.join(DTYPES)}")
    if configuration.memory_fraction is not None and configuration.pool_tokens is not None:
        cause = "--mem-fraction and --pool-tokens exclude each other"
        raise BadInput(cause, place="the embedded engine", remedy="give one of them")
    for field in ("memory_fraction", "pool_tokens", "chunk", "context", "max_running"):
        value = getattr(configuration, field)
        if value is not None and (value <= 0 or (field == "memory_fraction" and value > 1)):
            limits = "above 0 and at most 1" if field == "memory_fraction" else "1 or more"
            flag = next(name for name, (known, _) in VALUED.items() if known == field)
            raise BadInput(f"the embedded engine takes {limits}, not {value}", place=flag, remedy="correct the value")
    unknown = ADAPTER.parse_command(("--model", configuration.model, *configuration.flags), ()).not_understood
    if unknown:
        remedy = "`python -m draftmark.embedded --help` lists its flags"
        raise BadInput("the embedded engine has no such flag", place=unknown[0], remedy=remedy)


def _unserved(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """What this engine has no flag for, and why it cannot be had."""
    if configuration.parallel != Parallel():
        yield "--tp", "runs on one GPU"
    if configuration.speculative is not None:
        yield "--draft", "has no speculative decoding"
    if configuration.kv_dtype is not None:
        yield "--kv-dtype", f"caches in the served dtype, not in {configuration.kv_dtype!r}"
    if configuration.quantization is not None:
        yield "--quantization", f"does not quantize to {configuration.quantization!r}"
    if configuration.page not in {None, 1}:
        yield "--page-size", f"has pages of 1 token, not of {configuration.page}"
    if configuration.version not in {None, __version__}:
        yield "--engine-version", f"is part of Draftmark {__version__}; there is no version {configuration.version!r}"


def _after_module(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own arguments: what follows `-m draftmark.embedded`, or all."""
    return argv[argv.index(ENGINE) + 1 :] if ENGINE in argv else argv


def _take(words: tuple[str, ...]) -> tuple[str, str | None, tuple[str, ...]]:
    """The next flag, its value (None where it has none), and the words after them."""
    flag, joined, value = words[0].partition("=")
    if joined:
        return flag, value, words[1:]
    if flag.startswith("--") and len(words) > 1 and not words[1].startswith("--"):
        return flag, words[1], words[2:]
    return flag, None, words[1:]


def _read(flag: str, value: str | None, read: Callable[[str], Any]) -> Any:
    if value is None:
        raise BadInput("it has no value", place=flag, remedy="give it one")
    try:
        return read(value)
    except ValueError as error:
        raise BadInput(f"{value!r} cannot be used: {error}", place=flag, remedy="correct the value") from error


def _last(observations: tuple[Observation, ...]) -> dict[tuple[str, Phase], Observation]:
    """The last observation of each quantity in each phase."""
    return {(observation.quantity, observation.phase): observation for observation in observations}


ADAPTER: Final = Embedded()
