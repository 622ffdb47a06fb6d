"""SGLang: command line, log and HTTP interface, translated."""

from collections.abc import Iterable
from typing import Any, Final

import httpx
import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import sglang_memory
from draftmark.engines.adapter import Capabilities, Command, LogReader, Pasted, Requirement
from draftmark.engines.answer import decoded
from draftmark.engines.launch import own_words
from draftmark.engines.sglang_flags import parse_flags, write_flags
from draftmark.engines.sglang_log import SglangReader
from draftmark.ledger import Ledger, Pool
from draftmark.observation import Observation, ServerState, Source, Unit
from draftmark.units import GIB, Tokens

_MODULE: Final = "sglang.launch_server"


class Sglang:
    """Adapter of SGLang."""

    name: EngineName = "sglang"
    tested = ("0.4.0", "0.5.23")
    requirement = Requirement(modules=("sglang",), distribution="sglang", install="pip install sglang")
    capabilities = Capabilities(dummy_weights=("--load-format", "dummy"))

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:
        """The command that starts it."""
        flags = (*write_flags(configuration), "--host", host, "--port", str(port))
        if "--enable-metrics" not in flags:
            flags = (*flags, "--enable-metrics")
        return Command(argv=(python, "-m", _MODULE, *flags), environment=configuration.environment)

    def parse_command(self, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Pasted:
        """The configuration that a launch command asks for, whatever the version.

        Raises:
            BadInput: a known flag has a value that it cannot have.
        """
        return parse_flags(own_words(argv), environment, any_version=True)

    def host_commands(
        self, configuration: Configuration, *, python: str, port: int, hosts: tuple[str, ...]
    ) -> tuple[Command, ...]:
        """One command for each host; they find each other at the first one, one port above its HTTP port."""
        base = self.command(configuration, python=python, host="0.0.0.0", port=port)
        meeting = ("--nnodes", str(len(hosts)), "--dist-init-addr", f"{hosts[0]}:{port + 1}")
        return tuple(
            Command(argv=(*base.argv, *meeting, "--node-rank", str(rank)), environment=base.environment)
            for rank in range(len(hosts))
        )

    def reader(self, place: str) -> LogReader:
        """A reader for the log at `place`."""
        return SglangReader(place)

    def ledgers(self, observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
        """Observed memory, one ledger a rank, the one with the least left first."""
        return sglang_memory.ledgers(observations)

    def pool(self, observations: tuple[Observation, ...]) -> Pool | None:
        """The pool that the log states; None where it does not."""
        return sglang_memory.pool(observations)

    def probe(self, client: httpx.Client, url: str) -> ServerState | None:
        """What the server says at /server_info; None where it is another engine, or still loading.

        Raises:
            httpx.HTTPError: nothing answers at `url`.
        """
        for path in ("/server_info", "/get_server_info"):
            reply = client.get(f"{url}{path}")
            if reply.status_code == httpx.codes.OK:
                return _state(url, f"{url}{path}", reply.content)
        return None


class _Memory(msgspec.Struct):
    """`memory_usage`, GiB. `graph` was `cuda_graph` before 0.5.3 and is one number a phase since 0.5.23."""

    weight: float | None = None
    kvcache: float | None = None
    token_capacity: int | None = None
    startup_available: float | None = None
    graph: float | dict[str, float] | None = None
    cuda_graph: float | None = None

    @property
    def graphs(self) -> float | None:
        """All graphs together."""
        if isinstance(self.graph, dict):
            return sum(self.graph.values())
        return self.graph if self.graph is not None else self.cuda_graph


class _Internal(msgspec.Struct):
    memory_usage: _Memory = msgspec.field(default_factory=_Memory)
    effective_max_running_requests_per_dp: int | None = None


class _Info(msgspec.Struct):
    """Fields of /server_info that are used: arguments as resolved, what the scheduler found, and its state.

    `internal_states` has one entry a data-parallel rank; `max_total_num_tokens` and `max_req_input_len` are those of
    the first (http_server.py and data_parallel_controller.py of 0.5.15.post1 and 0.5.23).
    """

    model_path: str
    mem_fraction_static: float | None
    version: str | None = None
    served_model_name: str | None = None
    max_total_num_tokens: int | None = None
    max_req_input_len: int | None = None
    dp_size: int | None = None
    max_running_requests: int | None = None
    context_length: int | None = None
    page_size: int | None = None
    chunked_prefill_size: int | None = None
    speculative_num_draft_tokens: int | None = None
    device: str | None = None
    internal_states: list[_Internal] = []


def _state(url: str, place: str, body: bytes) -> ServerState | None:
    info = decoded(body, _Info)
    if info is None:
        return None
    states = info.internal_states
    memory = states[0].memory_usage if states else _Memory()
    tokens = _least(state.memory_usage.token_capacity for state in states)
    running = _least(state.effective_max_running_requests_per_dp for state in states)
    return ServerState(
        url=url,
        engine="sglang",
        version=info.version,
        models=(info.served_model_name or info.model_path,),
        context=_tokens(info.context_length),
        longest_prompt=_shifted(info.max_req_input_len, -1),
        longest_request=_shifted(info.max_req_input_len, _OUTPUT_BEYOND),
        ranks=len(states) or info.dp_size or 1,
        pool_tokens=_tokens(info.max_total_num_tokens if tokens is None else tokens),
        max_running=info.max_running_requests if running is None else running,
        page=_tokens(info.page_size),
        chunk=_tokens(info.chunked_prefill_size),
        draft_tokens=info.speculative_num_draft_tokens,
        device=info.device,
        token_ids=True,
        ignore_eos=True,
        cache_flush="/flush_cache",
        observations=tuple(_observations(info, memory, Source(place=place))),
    )


def _observations(info: _Info, memory: _Memory, source: Source) -> list[Observation]:
    amounts: tuple[tuple[str, Any, Unit], ...] = (
        ("memory_fraction", info.mem_fraction_static, "ratio"),
        ("weights", _bytes(memory.weight), "bytes"),
        ("pool_bytes", _bytes(memory.kvcache), "bytes"),
        ("graphs", _bytes(memory.graphs), "bytes"),
        ("free", _bytes(memory.startup_available), "bytes"),
    )
    return [
        Observation(quantity=quantity, value=value, unit=unit, source=source, phase="ready")
        for quantity, value, unit in amounts
        if value is not None
    ]


_OUTPUT_BEYOND: Final = 4
"""Tokens by which a request may exceed `max_req_input_len`: that is 5 below `max_req_len` (tp_worker.py), a prompt must
be shorter (managers/utils.py), and output is cut to `max_req_len` - prompt - 1 (scheduler.py of 0.5.15.post1, 0.5.23).
"""


def _shifted(value: int | None, by: int) -> Tokens | None:
    return None if value is None else Tokens(value + by)


def _least(values: Iterable[int | None]) -> int | None:
    """Of the ranks: where a request goes is not known beforehand."""
    return min((value for value in values if value is not None), default=None)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)


def _tokens(value: int | None) -> Tokens | None:
    return None if value is None else Tokens(value)


ADAPTER: Final = Sglang()
