"""Several hosts: the commands, and that every host's process is started and ended."""

from pathlib import Path

import pytest

from draftmark.configuration import Configuration, Parallel
from draftmark.engines.adapter import Command
from draftmark.engines.sglang import Sglang
from draftmark.engines.vllm import Vllm
from draftmark.errors import BadInput
from draftmark.serve import OnFirstHost, Others, Place, launcher_for, records, serve, spread
from draftmark.serve.process import EngineProcess
from tests.serve.test_launcher import SSH, program
from tests.serve.toy_adapter import ToyAdapter

HOSTS = ("alpha", "beta")


def test_sglang_has_a_rank_for_each_host_and_one_place_to_meet() -> None:
    configuration = Configuration(engine="sglang", model="m", parallel=Parallel(tensor=16))
    commands = Sglang().host_commands(configuration, python="python3", port=30000, hosts=HOSTS)
    tails = [command.argv[-6:] for command in commands]
    meeting = ("--nnodes", "2", "--dist-init-addr", "alpha:30001", "--node-rank")
    assert tails == [(*meeting, "0"), (*meeting, "1")]
    assert all("--tp-size" in command.argv and "0.0.0.0" in command.argv for command in commands)


def test_vllm_joins_a_ray_cluster_and_serves_from_its_head() -> None:
    configuration = Configuration(engine="vllm", model="m", parallel=Parallel(tensor=16))
    head, join = Vllm().host_commands(configuration, python="python3", port=8000, hosts=HOSTS)
    assert head.argv[:2] == ("sh", "-c")
    assert head.argv[2].startswith("ray start --head --port=6379 && exec python3 -m vllm")
    assert head.argv[2].endswith("--distributed-executor-backend ray")
    assert join.argv == ("ray", "start", "--address=alpha:6379", "--block")


def test_the_embedded_engine_runs_on_one_host() -> None:
    with pytest.raises(BadInput, match="runs on one host"):
        spread("embedded")


def test_a_template_must_name_the_host() -> None:
    with pytest.raises(BadInput, match=r"no \{host\} in it"):
        launcher_for("ssh somewhere", "alpha")


class ToySpread:
    def host_commands(
        self, configuration: Configuration, *, python: str, port: int, hosts: tuple[str, ...]
    ) -> tuple[Command, ...]:
        first = ToyAdapter().command(configuration, python=python, host="0.0.0.0", port=port)
        others = (Command(argv=("sleep", "600")) for _ in hosts[1:])
        return (first, *others)


def test_every_host_is_started_and_ended(configuration: Configuration, tmp_path: Path) -> None:
    template = f"{program(tmp_path, 'ssh', SSH)} {{host}}"
    commands = ToySpread().host_commands(configuration, python="python3", port=30000, hosts=HOSTS)
    adapter = OnFirstHost(ToyAdapter(), ToySpread(), HOSTS)
    place = Place(launcher=launcher_for(template, "alpha"), python="python3")
    with (
        Others(commands, HOSTS, template, configuration, tmp_path / "logs"),
        serve(configuration, adapter=adapter, place=place) as server,
    ):
        found = records.running()
        assert {record.name for record in found} == {server.record.name, "embedded-beta-0"}
        beta = next(record for record in found if record.name == "embedded-beta-0")
        assert EngineProcess(beta.pid, beta.created).members() != []
    assert EngineProcess(beta.pid, beta.created).members() == []
    assert records.running() == ()
