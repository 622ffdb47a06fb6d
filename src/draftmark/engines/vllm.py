"""vLLM: command line, log and HTTP interface, translated."""

import shlex
from typing import Final

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import vllm_memory
from draftmark.engines.adapter import Capabilities, Command, LogReader, Pasted, Requirement
from draftmark.engines.answer import decoded
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
    capabilities = Capabilities(dummy_weights=("--load-format", "dummy"))

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
        """What the server says at /v1/models, /version, /metrics and, in developer's mode, /server_info.

        None where it is another engine.

        Raises:
            httpx.HTTPError: nothing answers at `url`.
        """
        card = _card(client, url)
        if card is None:
            return None
        version = client.get(f"{url}/version")
        metrics = client.get(f"{url}/metrics")
        found = _metrics(metrics.text) if metrics.status_code == httpx.codes.OK else _Metrics()
        resolved = _resolved(client, url)
        return ServerState(
            url=url,
            engine="vllm",
            version=_version(version.content) if version.status_code == httpx.codes.OK else None,
            models=(card.id,),
            context=None if card.max_model_len is None else Tokens(card.max_model_len),
            ranks=found.engines,
            pool_tokens=found.pool_tokens,
            pool_reserved=Tokens(found.page or 0),
            max_running=resolved.scheduler_config.max_num_seqs,
            page=None if found.page is None else Tokens(found.page),
            chunk=None if resolved.chunk is None else Tokens(resolved.chunk),
            draft_tokens=resolved.draft_tokens,
            started=found.started,
            cache_flush="/reset_prefix_cache" if resolved.known else None,
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


class _Scheduler(msgspec.Struct):
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


class _Speculative(msgspec.Struct):
    num_speculative_tokens: int | None = None


class _Resolved(msgspec.Struct):
    """What is used of `vllm_config` at /server_info?config_format=json (entrypoints/serve/dev/server_info of 0.32)."""

    scheduler_config: _Scheduler = msgspec.field(default_factory=_Scheduler)
    speculative_config: _Speculative | None = None
    known: bool = False

    @property
    def chunk(self) -> int | None:
        """Tokens of one step."""
        return self.scheduler_config.max_num_batched_tokens

    @property
    def draft_tokens(self) -> int | None:
        """Tokens that are drafted in one step."""
        return None if self.speculative_config is None else self.speculative_config.num_speculative_tokens


class _ServerInfo(msgspec.Struct):
    vllm_config: _Resolved


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What /metrics says of the cache and the process.

    The labels of `vllm:cache_config_info` come once an engine (data-parallel rank). `num_gpu_blocks` is the sum over
    them, `kv_cache_size_tokens`, where there is one, that of a single engine (v1/engine/core_client.py of 0.32). The
    first block is never given to a request (v1/core/block_pool.py).
    """

    engines: int = 1
    page: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    windowed: bool = False
    memory_fraction: float | None = None
    started: float | None = None

    @property
    def pool_tokens(self) -> Tokens | None:
        """Tokens of one engine's pool, as it states them; else blocks times their size, which a request cannot exceed
        but where a window lets it hold less than its length."""
        if self.tokens is not None:
            return Tokens(self.tokens)
        if self.page is None or not self.blocks or self.windowed:
            return None
        return Tokens(self.blocks // self.engines * self.page)

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
    answer = decoded(reply.content, _Models)
    return None if answer is None else next((card for card in answer.data if card.owned_by == "vllm"), None)


def _version(body: bytes) -> str | None:
    answer = decoded(body, _Version)
    return None if answer is None else answer.version


def _resolved(client: httpx.Client, url: str) -> _Resolved:
    """The configuration as resolved; empty but in the developer's mode (VLLM_SERVER_DEV_MODE=1).

    The first answer may take seconds, as it looks over the machine; a server that takes too long is not asked for more.
    """
    try:
        reply = client.get(f"{url}/server_info", params={"config_format": "json"})
    except httpx.TimeoutException:
        return _Resolved()
    answer = decoded(reply.content, _ServerInfo) if reply.status_code == httpx.codes.OK else None
    return _Resolved() if answer is None else msgspec.structs.replace(answer.vllm_config, known=True)


def _metrics(text: str) -> _Metrics:
    """What the text says; nothing where it is no Prometheus text."""
    try:
        return _read_metrics(text)
    except ValueError:
        return _Metrics()


def _read_metrics(text: str) -> _Metrics:
    labels: dict[str, str] = {}
    started = None
    engines = set()
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:cache_config_info":
            labels = dict(family.samples[0].labels) if family.samples else {}
            engines |= {sample.labels.get("engine") for sample in family.samples}
        elif family.name == "process_start_time_seconds":
            started = family.samples[0].value if family.samples else None
    return _Metrics(
        engines=max(len(engines), 1),
        windowed=labels.get("sliding_window", "None") != "None",
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
