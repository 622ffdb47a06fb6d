"""What people paste."""

import pytest

from draftmark.engines.launch import Launch, find_launch, is_launch
from draftmark.errors import BadInput

SGLANG = ("--model-path", "m", "--tp", "2")
VLLM = ("m", "-tp", "2")


@pytest.mark.parametrize(
    ("words", "engine", "own", "environment"),
    [
        (["python", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "2"], "sglang", SGLANG, ()),
        (
            ["/opt/venv/bin/python3.12", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "2"],
            "sglang",
            SGLANG,
            (),
        ),
        (["sglang", "serve", "--model-path", "m", "--tp", "2"], "sglang", SGLANG, ()),
        (["sglang", "serve", "m", "--tp", "2"], "sglang", SGLANG, ()),
        (["vllm", "serve", "m", "-tp", "2"], "vllm", VLLM, ()),
        (["/usr/bin/vllm", "serve", "m", "-tp", "2"], "vllm", VLLM, ()),
        (["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m", "-tp", "2"], "vllm", VLLM, ()),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "m", "-tp", "2"], "vllm", VLLM, ()),
        (["A=b", "env", "C=d=e", "nohup", "vllm", "serve", "m", "-tp", "2"], "vllm", VLLM, (("A", "b"), ("C", "d=e"))),
        (["sh", "-c", "A='b c' vllm serve m -tp 2 2>&1 | tee x.log"], "vllm", VLLM, (("A", "b c"),)),
        (["vllm serve m \\\n  -tp 2 > log 2>&1 &"], "vllm", VLLM, ()),
        (["export A=b; cd /x && vllm serve m -tp 2; echo done"], "vllm", VLLM, (("A", "b"),)),
        (["vllm serve m -tp 2 >log"], "vllm", VLLM, ()),
        (["uv", "run", "--with", "vllm", "vllm", "serve", "m", "-tp", "2"], "vllm", VLLM, ()),
        (["numactl", "--cpunodebind=0", "sglang", "serve", "m", "--tp", "2"], "sglang", SGLANG, ()),
        (
            [
                "docker",
                "run",
                "--rm",
                "--ulimit",
                "memlock=-1",
                "-e",
                "A=b",
                "--env=C=d",
                "vllm/vllm-openai",
                "m",
                "-tp",
                "2",
            ],
            "vllm",
            VLLM,
            (("A", "b"), ("C", "d")),
        ),
        (
            ["docker", "run", "--gpus", '"device=1,3"', "lmsysorg/sglang:dev", "sglang", "serve", "m", "--tp", "2"],
            "sglang",
            SGLANG,
            (("NVIDIA_VISIBLE_DEVICES", "1,3"),),
        ),
        (
            ["podman", "run", "--gpus=2", "vllm/vllm-openai:latest", "m", "-tp", "2"],
            "vllm",
            VLLM,
            (("NVIDIA_VISIBLE_DEVICES", "0,1"),),
        ),
    ],
)
def test_forms_of_a_launch(
    words: list[str], engine: str, own: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> None:
    found = find_launch(tuple(words))
    assert (found.engine, found.words, found.environment) == (engine, own, environment)
    assert is_launch(words[0])


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.10.2", "0.10.2"),
        ("registry.local:5000/vllm/vllm-openai:0.11.0-cu128", "0.11.0"),
        ("lmsysorg/sglang:v0.5.6.post2-cu126", "0.5.6.post2"),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang", None),
    ],
)
def test_an_images_tag_tells_the_version(image: str, version: str | None) -> None:
    assert find_launch(("docker", "run", image, "vllm", "serve", "m")).version == version


@pytest.mark.parametrize(
    "words",
    [("bash", "run.sh"), ("vllm", "bench", "serve"), ("docker", "run", "redis"), ("serve", "m"), ("python", "x.py")],
)
def test_what_starts_no_engine_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="not a launch command"):
        find_launch(words)


def test_quotes_that_do_not_close_are_refused() -> None:
    with pytest.raises(BadInput, match="close every quote"):
        find_launch(("vllm serve 'm -tp 2",))


def test_models_are_no_commands() -> None:
    assert not any(is_launch(model) for model in ("Qwen/Qwen3-8B", "/models/vllm-x/config.json", "./serve", "m"))
    assert isinstance(find_launch(("vllm", "serve", "m")), Launch)
