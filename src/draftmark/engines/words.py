"""Which words of a launch command belong to which flag: argparse decides, as in the engines, by their flags."""

import argparse
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec

from draftmark.configuration import EngineName
from draftmark.engines.offered import Option, Takes, ever, options, read_versions
from draftmark.errors import BadInput

_NARGS: Final[dict[Takes, int | str | None]] = {"none": 0, "switch": 0, "maybe": "?", "one": None, "many": "*"}
_FLAG: Final = re.compile(r"--?[a-zA-Z][\w.-]*")
_LEVEL: Final = re.compile(r"-O=?(\d)")
_NEAR: Final = 0.85
"""Likeness from which an unknown flag is taken for a slip of the pen."""


_PREFIXES: Final[dict[EngineName, tuple[str, ...]]] = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}
_UNDERSTOOD: Final = (
    "SGLANG_MAMBA_SSM_DTYPE", "VLLM_LOGGING_LEVEL", "VLLM_API_KEY", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT",
    "VLLM_NO_USAGE_STATS", "VLLM_HOST_IP", "VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_CONFIG_PATH", "SGLANG_HOST_IP",
    "SGLANG_LOGGING_CONFIG_PATH", "VLLM_WORKER_MULTIPROC_METHOD",
)  # fmt: skip
"""Variables of an engine that are in the prediction, or change no memory."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One flag with what follows it. `name` is the one that stands for all of its names, `written` what was written."""

    name: str
    values: tuple[str, ...]
    written: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """As arguments again."""
        return (self.name, *self.values)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A launch command's words, sorted."""

    given: tuple[Given, ...]
    positional: tuple[str, ...]
    unknown: tuple[Given, ...]
    """Flags that the version does not have."""


class _Parser(argparse.ArgumentParser):
    """Refuses as the rest of Draftmark does."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving.

        Raises:
            BadInput: always.
        """
        name, colon, cause = message.removeprefix("argument ").partition(": ")
        if not colon or name == message:
            name, cause = "launch command", message
        raise BadInput(cause, place=name.rsplit("/", 1)[-1], remedy="check the command: the engine refuses it as well")


class _Keep(argparse.Action):
    """Puts what was given into a list, in the order in which it was written."""

    def __call__(self, _parser: object, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Take one flag."""
        texts = [] if values is None else values if isinstance(values, list) else [values]
        namespace.given.append(Given(name=self.dest, values=tuple(map(str, texts)), written=option_string or ""))


def split(argv: tuple[str, ...]) -> Iterator[Given]:
    """Flags with what follows each, where it is not known whose they are; words before the first have an empty name."""
    name = ""
    values: list[str] = []
    for word in argv:
        head, equals, tail = word.partition("=")
        if _FLAG.fullmatch(head):
            if name or values:
                yield Given(name=name, values=tuple(values))
            name, values = _dashed(head), [tail] if equals else []
        else:
            values.append(word)
    if name or values:
        yield Given(name=name, values=tuple(values))


def read_words(argv: tuple[str, ...], engine: EngineName, version: str | None, *, any_version: bool = False) -> Read:
    """Sort a launch command's words by the flags of that version, abbreviations and aliases included.

    Args:
        argv: the words after the program.
        engine: whose flags they are.
        version: which one; the newest that was read where None.
        any_version: the words come from a log: flags of any version are taken.

    Raises:
        BadInput: argparse refuses them: a value is missing, or an abbreviation fits several flags.
    """
    known = ever(engine) if any_version else options(engine, version)
    words = flexible(argv, known) if engine == "vllm" else argv
    parser = _parser(known.values())
    heads = [word.partition("=")[0] for word in words]
    # Flags of other versions are no abbreviations of this one's.
    strange = {name: ever(engine)[name].takes for name in heads if name in ever(engine) and name not in known}
    for name, takes in strange.items():
        parser.add_argument(name, dest=name, nargs=_NARGS[takes], action=_Keep)
    _, left = parser.parse_known_args(words, argparse.Namespace(given=[]))
    for name in dict.fromkeys(word.partition("=")[0] for word in left):
        if _FLAG.fullmatch(name) and name not in known and name not in strange:
            strange[name] = "many"
            parser.add_argument(name, dest=name, nargs="*", action=_Keep)
    found, positional = parser.parse_known_args(words, argparse.Namespace(given=[]))
    given: list[Given] = found.given
    return Read(
        given=tuple(one for one in given if one.name not in strange),
        positional=tuple(positional),
        unknown=tuple(one for one in given if one.name in strange),
    )


def _parser(known: Iterable[Option]) -> _Parser:
    """A parser that has all of these names; a negation goes by its own."""
    parser = _Parser(add_help=False, prog="")
    for option in known:
        dest = option.name if option.name.startswith("--no-") and option.takes == "none" else option.flag
        parser.add_argument(option.name, dest=dest, nargs=_NARGS[option.takes], action=_Keep)
    return parser


def flexible(argv: tuple[str, ...], known: Mapping[str, Option]) -> tuple[str, ...]:
    """What vLLM's parser does before argparse: underscores, -O3, `--flag.key value` as JSON (0.33.0)."""
    level = "--optimization-level" if "--optimization-level" in known else "--compilation-config"
    words: list[str] = []
    nested: dict[str, dict[str, Any]] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if _LEVEL.fullmatch(word) or (word == "-O" and rest and rest[0].isdigit()):
            words += [level, word[-1] if word != "-O" else rest.pop(0)]
        elif name.startswith("-") and "." in name and _FLAG.match(name) and (equals or rest):
            head, *keys = name.rstrip("+").split(".")
            text = value if equals else rest.pop(0)
            _put(nested.setdefault(_dashed(head), {}), keys, text.split(",") if name.endswith("+") else _json(text))
        else:
            words.append(_dashed(name) + equals + value)
    for head, values in nested.items():
        words += [head, json.dumps(values)]
    return tuple(words)


def _dashed(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _put(into: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = into.setdefault(key, {})
        into = inner if isinstance(inner, dict) else {}
    into[keys[-1]] = value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def twice(given: Iterable[Given], engine: EngineName) -> tuple[str, ...]:
    """What is said of flags that were given more than once with different values: argparse takes the last."""
    values: dict[str, list[str]] = {}
    for one in given:
        values.setdefault(one.name, []).append(" ".join(one.values))
    return tuple(
        f"{name} is given {len(texts)} times ({', '.join(texts)}): {engine} takes the last"
        for name, texts in values.items()
        if len(set(texts)) > 1
    )


def name_unknown(one: Given, engine: EngineName, version: str | None, *, any_version: bool = False) -> str:
    """How a flag that the version does not have is named in the output, where no version was asked for.

    Raises:
        BadInput: a version was asked for, so that its engine refuses the flag; or it looks like a slip of the pen.
    """
    if any_version:
        return " ".join(one.words)
    was = ever(engine).get(one.name)
    newest = read_versions(engine)[-1:]
    if was is not None:
        span = f"it had {one.name} from {was.since}" + (f" to before {was.until}" if was.until else "")
        if version is None:
            return f"{' '.join(one.words)} (not a flag of {engine} {''.join(newest)}: {span}; name the version)"
        raise BadInput(
            f"{engine} {version} has no such flag",
            place=one.name,
            remedy=f"{span}; leave it out, or plan for one of those",
        )
    near = difflib.get_close_matches(one.name, options(engine, version), n=1, cutoff=_NEAR)
    if near or version is not None:
        hint = f"did you mean {near[0]}? Else leave it out" if near else "leave it out"
        raise BadInput(f"{engine} {version or ''.join(newest)} has no such flag", place=one.name, remedy=hint)
    return " ".join(one.words)


def strays(words: Iterable[str], *, any_version: bool) -> tuple[str, ...]:
    """Words that belong to no flag, as they are named where they come from a log.

    Raises:
        BadInput: they do not: the engine refuses them.
    """
    for word in words:
        if not any_version:
            raise BadInput("belongs to no flag", place=word or "an empty word", remedy="the engine refuses it as well")
    return tuple(f"{word} (belongs to no flag)" for word in words)


def strange(environment: Iterable[tuple[str, str]], engine: EngineName) -> tuple[str, ...]:
    """Variables of the engine itself that may change memory and are in no formula, as assignments."""
    return tuple(
        f"{name}={value}"
        for name, value in environment
        if name.startswith(_PREFIXES[engine]) and name not in _UNDERSTOOD
    )
