"""Prefixes: what is added for containers and ssh, and that both are stopped on their own side.

`docker` and `ssh` are programs of these tests that do what matters here: run the command in a session of its own.
"""

import shutil
import stat
from pathlib import Path

import msgspec
import pytest

from draftmark.configuration import Configuration
from draftmark.engines.adapter import Command
from draftmark.errors import BadInput, EngineFailed
from draftmark.serve import Launcher, Place, StartFailed, parse_launcher, records, serve
from draftmark.serve.process import EngineProcess
from tests.serve.toy_adapter import ToyAdapter

BARE = Command(argv=("python3", "-m", "engine", "--port", "8000"), environment=(("A", "b c"),))

DOCKER = """#!/bin/bash
case $1 in
run)
    shift
    while [[ $1 == --* ]]; do
        case $1 in --cidfile) id_file=$2 ;; --env) export "$2" ;; esac
        shift 2
    done
    shift
    setsid "$@" &
    echo $! > "$id_file"
    wait $! ;;
stop)
    kill -TERM -- "-$4"
    while kill -0 -- "-$4" 2> /dev/null; do sleep 0.05; done ;;
esac
"""
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
shift
exec setsid --wait sh -c "$*"
"""


def program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_prefix_stands_before_the_command() -> None:
    launcher = parse_launcher("numactl --membind '0'")
    wrapped = launcher.wrap(BARE, 8000, Path("id"))
    assert wrapped.argv == ("numactl", "--membind", "0", *BARE.argv)
    assert wrapped.environment == BARE.environment


def test_a_container_publishes_its_port_and_writes_its_id() -> None:
    launcher = parse_launcher("docker run --gpus all image:1")
    wrapped = launcher.wrap(BARE, 8000, Path("/x/id"))
    assert launcher.bind == "0.0.0.0"
    assert wrapped.argv == (
        *("docker", "run", "--cidfile", "/x/id", "--publish", "127.0.0.1:8000:8000", "--env", "A=b c"),
        *("--gpus", "all", "image:1", *BARE.argv),
    )


@pytest.mark.parametrize("option", ["--network host", "--net=host", "-p 8000:8000", "--publish=8000:8000"])
def test_a_users_own_network_is_left_alone(option: str) -> None:
    wrapped = parse_launcher(f"docker run {option} image").wrap(BARE, 8000, Path("id"))
    assert "127.0.0.1:8000:8000" not in wrapped.argv


def test_ssh_forwards_the_port_and_quotes_for_the_far_shell() -> None:
    wrapped = parse_launcher("ssh -p 22 host").wrap(BARE, 8000, Path("id"))
    assert wrapped.argv[:8] == (
        "ssh",
        "-o",
        "ExitOnForwardFailure=yes",
        "-L",
        "8000:127.0.0.1:8000",
        "-p",
        "22",
        "host",
    )
    assert wrapped.argv[8] == (
        """echo "draftmark: remote process $$"; exec env 'A=b c' python3 -m engine --port 8000"""
    )


def test_quotes_that_do_not_match() -> None:
    with pytest.raises(BadInput, match="--launcher"):
        parse_launcher("docker 'run")


def test_a_container_is_stopped_by_its_id(configuration: Configuration, tmp_path: Path) -> None:
    docker = program(tmp_path, "docker", DOCKER)
    place = Place(launcher=parse_launcher(f"{docker} run --gpus all image"), python="python3")
    with serve(configuration, adapter=ToyAdapter(), place=place) as server:
        container = records.container(server.record)
        assert container is not None
        inside = EngineProcess(int(container), 0.0)
        assert len(inside.members()) == 2
        assert inside.pid != server.process.pid
    assert inside.members() == []
    assert records.container(server.record) is None


def test_a_remote_engine_is_stopped_by_its_remote_process(configuration: Configuration, tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", SSH)
    place = Place(launcher=parse_launcher(f"{ssh} host"), python="python3")
    with serve(configuration, adapter=ToyAdapter(), place=place) as server:
        assert server.record.remote_process is not None
        remote = EngineProcess(server.record.remote_process, 0.0)
        assert len(remote.members()) == 2
    assert remote.members() == []


def test_a_prefix_that_fails_says_what_it_said(configuration: Configuration) -> None:
    with pytest.raises(EngineFailed, match=r"ended in phase init \(exit code 3\): no such cluster"):
        serve(
            configuration,
            adapter=ToyAdapter(),
            place=Place(launcher=Launcher(words=("sh", "-c", "echo no such cluster; exit 3"))),
        )


@pytest.mark.parametrize("words", [("false",), ("sh", "-c", "exit 7"), ("sh", "-c", "echo; exit 7")])
def test_a_prefix_that_ends_without_a_word_is_named_as_the_one_to_look_at(
    configuration: Configuration, words: tuple[str, ...]
) -> None:
    with pytest.raises(StartFailed, match=r"\(exit code \d\): it wrote nothing, .*; see that --launcher and --python"):
        serve(configuration, adapter=ToyAdapter(), place=Place(launcher=Launcher(words=words)))


def test_a_prefix_that_is_no_program(configuration: Configuration) -> None:
    with pytest.raises(BadInput, match="no-such-launcher"):
        serve(configuration, adapter=ToyAdapter(), place=Place(launcher=Launcher(words=("no-such-launcher",))))
    assert records.running() == ()


def test_behind_a_launcher_the_log_tells_the_version(configuration: Configuration) -> None:
    failing = msgspec.structs.replace(configuration, flags=("--behaviour", "oom"))
    with pytest.raises(StartFailed) as failed:
        serve(failing, adapter=ToyAdapter(), place=Place(launcher=parse_launcher("env")))
    assert failed.value.trial.environment.engine_version == "7"


@pytest.mark.parametrize(
    ("words", "kind", "program"),
    [
        ("docker run image", "container", ("docker",)),
        ("sudo docker run --rm image", "container", ("sudo", "docker")),
        ("sudo -E /usr/bin/podman run image", "container", ("sudo", "-E", "/usr/bin/podman")),
        ("ssh host docker run image", "ssh", None),
        ("docker exec c1", "prefix", None),
        ("srun --gres gpu:8", "prefix", None),
    ],
)
def test_what_kind_of_prefix_it_is(words: str, kind: str, program: tuple[str, ...] | None) -> None:
    launcher = parse_launcher(words)
    assert launcher.kind == kind
    assert program is None or launcher.program == program


def test_a_container_behind_sudo_gets_its_options_where_docker_reads_them() -> None:
    argv = parse_launcher("sudo docker run --rm image").wrap(BARE, 8000, Path("/x/id")).argv
    assert argv[:5] == ("sudo", "docker", "run", "--cidfile", "/x/id")


@pytest.mark.parametrize("option", ["-d", "-dit", "-itd", "--detach", "--detach=true"])
def test_a_container_that_runs_detached_cannot_be_followed(option: str) -> None:
    with pytest.raises(BadInput, match="--launcher: a container that runs detached"):
        parse_launcher(f"docker run {option} image")
    assert parse_launcher("docker run -it --device /dev/x image").kind == "container"


def test_a_death_without_a_word_is_in_the_first_phase(configuration: Configuration) -> None:
    with pytest.raises(StartFailed, match="ended in phase init"):
        serve(configuration, place=Place(launcher=Launcher(words=("sh", "-c", "echo docker: no; exit 125"))))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_a_real_ssh_that_reaches_nobody(configuration: Configuration) -> None:
    with pytest.raises(StartFailed, match=r"connect to host 127\.0\.0\.1 port 9: Connection refused"):
        serve(configuration, place=Place(launcher=parse_launcher("ssh -p 9 -o BatchMode=yes 127.0.0.1")))
