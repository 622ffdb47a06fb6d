"""vLLM: command line, log and HTTP interface, translated."""

import shlex
from typing import Final

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import vllm_memory
from draftmark.engines.adapter import Capabilities, Command, LogReader, Pasted, Requirement
from draftmark.engines.launch import own_words
from draftmark.engines.vllm_flags import parse_flags, write_flags
from draftmark.engines.vllm_log import VllmReader
from draftmark.ledger import Ledger, Pool
from draftmark.observation import Observation, ServerState, Source
from draftmark.units import Tokens

_MODULE: Final = "vllm.entrypoints.openai.api_server"
_RAY_PORT: Final = 6379


class Vllm:
    """Adapter of vLLM."""

    name: EngineName = "vllm"
    tested = ("0.6", "0.33")
    requirement = Requirement(modules=("vllm",), distribution="vllm", install="pip install vllm")
    capabilities = Capabilities(
        token_ids=True,
        ignore_eos=True,
        per_chunk_usage=True,
        metrics=True,
        dummy_weights=("--load-format", "dummy"),
    )

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:
        """The command that starts it, with the log level at which every version states its memory."""
        flags = (*write_flags(configuration), "--host", host, "--port", str(port))
        environment = {"VLLM_LOGGING_LEVEL": "DEBUG", **dict(configuration.environment)}
        argv = (python, "-m", _MODULE, "--model", configuration.model, *flags)
        return Command(argv=argv, environment=tuple(environment.items()))

    def parse_command(self, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Pasted:
        """The configuration that a launch command asks for, whatever the version.

        Raises:
            BadInput: a known flag has a value that it cannot have.
        """
        return parse_flags(own_words(argv), environment, any_version=True)

    def host_commands(
        self, configuration: Configuration, *, python: str, port: int, hosts: tuple[str, ...]
    ) -> tuple[Command, ...]:
        """One command for each host: all join a Ray cluster, and the first one then starts the server on it."""
        serve = self.command(configuration, python=python, host="0.0.0.0", port=port)
        argv = shlex.join((*serve.argv, "--distributed-executor-backend", "ray"))
        head = f"ray start --head --port={_RAY_PORT} && exec {argv}"
        join = ("ray", "start", f"--address={hosts[0]}:{_RAY_PORT}", "--block")
        first = Command(argv=("sh", "-c", head), environment=serve.environment)
        return (first, *(Command(argv=join, environment=serve.environment) for _ in hosts[1:]))

    def reader(self, place: str) -> LogReader:
        """A reader for the log at `place`."""
        return VllmReader(place)

    def ledgers(self, observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
        """Observed memory, one ledger a rank, the one with the smallest pool first."""
        return vllm_memory.ledgers(observations)

    def pool(self, observations: tuple[Observation, ...]) -> Pool | None:
        """The pool that the log states; None where it does not."""
        return vllm_memory.pool(observations)

    def probe(self, client: httpx.Client, url: str) -> ServerState | None:
        """What the server says at /v1/models, /version and /metrics; None where it is another engine.

        Raises:
            httpx.HTTPError: nothing answers at `url`.
        """
        card = _card(client, url)
        if card is None:
            return None
        version = client.get(f"{url}/version")
        metrics = client.get(f"{url}/metrics")
        found = _metrics(metrics.text) if metrics.status_code == httpx.codes.OK else _Metrics()
        return ServerState(
            url=url,
            engine="vllm",
            version=_version(version.content) if version.status_code == httpx.codes.OK else None,
            models=(card.id,),
            context=None if card.max_model_len is None else Tokens(card.max_model_len),
            pool_tokens=None if found.tokens is None else Tokens(found.tokens),
            page=None if found.page is None else Tokens(found.page),
            started=found.started,
            token_ids=True,
            ignore_eos=True,
            observations=found.observations(Source(place=f"{url}/metrics")),
        )


class _Card(msgspec.Struct):
    id: str
    owned_by: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


class _Version(msgspec.Struct):
    version: str


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What /metrics says of the cache and the process."""

    page: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    memory_fraction: float | None = None
    started: float | None = None

    def observations(self, source: Source) -> tuple[Observation, ...]:
        """The same as observations."""
        seen = []
        if self.blocks is not None:
            seen.append(Observation(quantity="blocks", value=self.blocks, unit="blocks", source=source, phase="ready"))
        if self.page is not None:
            seen.append(Observation(quantity="page", value=self.page, unit="tokens", source=source, phase="ready"))
        if self.memory_fraction is not None:
            seen.append(
                Observation(
                    quantity="memory_fraction", value=self.memory_fraction, unit="ratio", source=source, phase="ready"
                )
            )
        return tuple(seen)


def _card(client: httpx.Client, url: str) -> _Card | None:
    reply = client.get(f"{url}/v1/models")
    if reply.status_code != httpx.codes.OK:
        return None
    try:
        cards = msgspec.json.decode(reply.content, type=_Models).data
    except msgspec.MsgspecError:
        return None
    return next((card for card in cards if card.owned_by == "vllm"), None)


def _version(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_Version).version
    except msgspec.MsgspecError:
        return None


def _metrics(text: str) -> _Metrics:
    labels: dict[str, str] = {}
    started = None
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:cache_config_info":
            labels = dict(family.samples[0].labels) if family.samples else {}
        elif family.name == "process_start_time_seconds":
            started = family.samples[0].value if family.samples else None
    return _Metrics(
        page=_whole(labels.get("block_size")),
        blocks=_whole(labels.get("num_gpu_blocks")),
        tokens=_whole(labels.get("kv_cache_size_tokens")),
        memory_fraction=_number(labels.get("gpu_memory_utilization")),
        started=started,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


ADAPTER: Final = Vllm()
