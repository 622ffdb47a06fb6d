"""The adapter of the toy engine."""

from pathlib import Path

import httpx

from draftmark.configuration import Configuration, EngineName
from draftmark.engines.adapter import Capabilities, Command, Pasted, Requirement
from draftmark.ledger import Ledger, Pool
from draftmark.observation import Observation, Phase, ServerState, Source
from draftmark.units import Tokens

ENGINE = Path(__file__).with_name("toy_engine.py")
PHASES: dict[str, Phase] = {
    "phase weights": "weights",
    "phase pool": "pool",
    "phase ready": "ready",
    "phase prefill": "prefill",
}


class ToyReader:
    def __init__(self, place: str) -> None:
        self.place = place
        self.phase: Phase = "init"

    def feed(self, line: str, number: int) -> tuple[Observation, ...]:
        self.phase = PHASES.get(line, self.phase)
        source = Source(place=self.place, line=number, text=line)
        if line.startswith("version "):
            return (Observation(quantity="version", value=line.split()[-1], unit="text", source=source),)
        if not line.startswith("pool tokens "):
            return ()
        return (Observation(quantity="pool_tokens", value=int(line.split()[-1]), unit="tokens", source=source),)


class ToyAdapter:
    name: EngineName = "embedded"
    tested = ("0", "0")
    capabilities = Capabilities()
    requirement = Requirement(modules=("json",), distribution="pip", install="pip install nothing")

    def command(self, configuration: Configuration, *, python: str, host: str, port: int) -> Command:
        return Command(argv=(python, str(ENGINE), "--host", host, "--port", str(port), *configuration.flags))

    def parse_command(self, argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Pasted:
        raise NotImplementedError

    def reader(self, place: str) -> ToyReader:
        return ToyReader(place)

    def ledgers(self, observations: tuple[Observation, ...]) -> tuple[Ledger, ...]:
        return ()

    def pool(self, observations: tuple[Observation, ...]) -> Pool | None:
        stated = [seen.value for seen in observations if seen.quantity == "pool_tokens"]
        return Pool(tokens=Tokens(int(stated[-1]))) if stated else None

    def probe(self, client: httpx.Client, url: str) -> ServerState | None:
        client.get(f"{url}/server_info").raise_for_status()
        return ServerState(url=url, engine="toy", version="1", models=("toy",))
