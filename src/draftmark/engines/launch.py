"""What people paste as a launch command: assignments, wrappers, containers and shell syntax around a start."""

import re
import shlex
from typing import Final

import msgspec

from draftmark.configuration import EngineName
from draftmark.errors import BadInput

_OPERATOR: Final = re.compile(r"[;&|<>()]+")
"""Words at which a shell ends a command or sends its output elsewhere."""
_REDIRECTION: Final = re.compile(r"(?<!\S)(?:\d?>{1,2}|&>{1,2}|\d?<)(?:&\d|\s*[^\s;&|]+)")
"""Output sent elsewhere: `2>&1`, `> log`."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_IMAGE: Final = re.compile(r"(?:[\w.:-]+/)+(?P<name>(?:vllm|sglang)[a-z-]*)(?::(?P<tag>[\w.-]+))?(?:@.*)?")
_TAG: Final = re.compile(r"v?(\d+(?:\.\d+)+(?:\.?post\d+)?)(?:[-+].*)?")
_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_WRAPPERS: Final = (
    *_CONTAINERS, "env", "sudo", "nohup", "exec", "time", "numactl", "taskset", "nice", "setsid", "uv", "uvx", "srun",
    "mpirun", "conda", "poetry", "stdbuf", "export", "bash", "sh", "cd",
)  # fmt: skip
"""Programs that people start engines with."""
_SERVES: Final = "vllm-openai"
"""The image that starts vLLM's server by itself."""
_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine is started, with which words and environment."""

    engine: EngineName
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    version: str | None = None
    """The engine's, where a container image's tag tells it."""


def is_launch(word: str) -> bool:
    """Whether a word begins a launch command and is no model."""
    name = word.rsplit("/", 1)[-1]
    starts = bool(_ASSIGNMENT.fullmatch(word)) or name.startswith("python") or name in ("vllm", "sglang", *_WRAPPERS)
    return starts or len(word.split()) > 1


def find_launch(words: tuple[str, ...]) -> Launch:
    """The engine's start in a pasted command.

    Raises:
        BadInput: there is none, or a quote does not close.
    """
    parts = _split(words)
    found = _start(parts)
    if found is None:
        raise BadInput(
            "not a launch command of SGLang or vLLM",
            place=" ".join(words)[:80],
            remedy="paste `python -m sglang.launch_server ...` or `vllm serve ...` after --",
        )
    engine, at = found
    rest = parts[at:]
    end = next((number for number, word in enumerate(rest) if _OPERATOR.fullmatch(word)), len(rest))
    own = rest[:end]
    if engine == "sglang" and own and parts[at - 1] == "serve" and not own[0].startswith("-"):
        own.insert(0, "--model-path")  # `sglang serve MODEL`
    before = parts[:at]
    return Launch(engine=engine, words=tuple(own), environment=_environment(before), version=_version(before))


def own_words(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own words of a command that starts it; all of them where nothing does."""
    found = _start(list(argv))
    return argv[found[1] :] if found is not None else argv


def _split(words: tuple[str, ...]) -> list[str]:
    """The words as a shell splits them, where a whole command stands in one: in quotes, or after `sh -c`."""
    parts: list[str] = []
    for word in words:
        if len(word.split()) == 1 or _start(word.split()) is None:
            parts += [] if word.strip() == "\\" else [word]
            continue
        text = _REDIRECTION.sub(" ", word.replace("\\\n", " "))
        reader = shlex.shlex(text, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            parts += _split(tuple(reader))
        except ValueError as error:
            raise BadInput(str(error), place=word[:80], remedy="close every quote") from error
    return parts


def _start(words: list[str]) -> tuple[EngineName, int] | None:
    """The engine, and where its own words begin."""
    for at, word in enumerate(words):
        if word.removesuffix(".py").endswith("launch_server"):
            return "sglang", at + 1
        if word.removesuffix(".py").endswith("api_server"):
            return "vllm", at + 1
        if word == "serve" and at and (program := words[at - 1].rsplit("/", 1)[-1]).startswith(("vllm", "sglang")):
            return ("vllm" if program.startswith("vllm") else "sglang"), at + 1
    if any(word.rsplit("/", 1)[-1] in _CONTAINERS for word in words):
        for at, word in enumerate(words):
            image = _IMAGE.fullmatch(word)
            if image is not None and image["name"] == _SERVES:
                return "vllm", at + 1
    return None


def _environment(before: list[str]) -> tuple[tuple[str, str], ...]:
    """Assignments in front of the engine's start, those that a container is given, and the GPUs that it sees."""
    found: list[tuple[str, str]] = []
    for at, word in enumerate(before):
        flag = before[at - 1] if at else ""
        text = word.partition("=")[2] if word.startswith("--env=") else word
        assigned = _ASSIGNMENT.fullmatch(text)
        if assigned is not None and (not flag.startswith("-") or flag in ("-e", "--env", "-E", "-i", "-c")):
            found.append((assigned[1], assigned[2]))
        gpus = text if flag == "--gpus" else word.partition("=")[2] if word.startswith("--gpus=") else ""
        gpus = gpus.strip("\"'")
        if gpus.startswith("device="):
            found.append((_GPUS, gpus.removeprefix("device=")))
        elif gpus.isdigit():
            found.append((_GPUS, ",".join(map(str, range(int(gpus))))))
    return tuple(found)


def _version(before: list[str]) -> str | None:
    """The version in the tag of a container image."""
    for word in before:
        image = _IMAGE.fullmatch(word)
        tag = _TAG.fullmatch(image["tag"] or "") if image is not None else None
        if tag is not None:
            return tag[1]
    return None
