"""What an engine of some version cannot combine: data/combinations.toml, each rule with its source."""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.engines.versions import parse_version
from draftmark.model import Gqa, Mla, Model

Condition = Callable[[Configuration, Model], bool]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Two conditions that exclude each other in some versions of an engine."""

    engine: str
    since: str
    one: str
    two: str
    source: str
    until: str | None = None
    device: str | None = None

    def holds(self, configuration: Configuration, newest: str) -> bool:
        """Whether the rule is about this engine, version and device."""
        version = parse_version(configuration.version or newest)
        return (
            self.engine == configuration.engine
            and version >= parse_version(self.since)
            and (self.until is None or version < parse_version(self.until))
            and (self.device is None or self.device == configuration.device)
        )


def expandable(configuration: Configuration) -> bool:
    """Whether torch's expandable segments are asked for."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return any(name in names and "expandable_segments:True" in value for name, value in configuration.environment)


def _custom_all_reduce(configuration: Configuration) -> bool:
    return configuration.parallel.tensor > 1 and "--disable-custom-all-reduce" not in configuration.flags


def _windows(model: Model) -> bool:
    return any(isinstance(layer.mixer, Gqa) and layer.mixer.window is not None for layer in model.layers)


def _heads_for_every_rank(configuration: Configuration, model: Model) -> bool:
    heads = [layer.mixer.kv_heads for layer in model.layers if isinstance(layer.mixer, Gqa)]
    parallel = configuration.parallel
    return bool(heads) and parallel.decode_context > max(1, parallel.tensor // max(heads))


def _pages_without_trees(configuration: Configuration) -> bool:
    flags = configuration.flags
    backends = [flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--attention-backend"]
    return (configuration.page or 1) > 1 and not set(backends) & {"flashinfer", "fa3", "triton"}


CONDITIONS: Final[dict[str, Condition]] = {
    "decode context parallelism": lambda configuration, _: configuration.parallel.decode_context > 1,
    "speculation": lambda configuration, _: configuration.speculative is not None,
    "no latent attention": lambda _, model: not any(isinstance(layer.mixer, Mla) for layer in model.layers),
    "anything": lambda _, __: True,
    "expandable segments": lambda configuration, _: expandable(configuration),
    "custom all-reduce": lambda configuration, _: _custom_all_reduce(configuration),
    "trees": lambda configuration, _: (
        (configuration.speculative is not None) and (configuration.speculative.top_k or 1) > 1
    ),
    "pages": lambda configuration, _: _pages_without_trees(configuration),
    "pipeline stages": lambda configuration, _: configuration.parallel.pipeline > 1,
    "windows": lambda _, model: _windows(model),
    "selected blocks": lambda _, model: model.selects_blocks,
    "heads for every rank": _heads_for_every_rank,
    "KV connector": lambda configuration, _: "--kv-transfer-config" in configuration.flags,
}
"""What the words in the table mean."""


@cache
def rules() -> tuple[Rule, ...]:
    """All rules."""
    text = files("draftmark").joinpath("data/combinations.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["rule"], tuple[Rule, ...])


def broken(configuration: Configuration, model: Model, newest: str) -> tuple[Rule, ...]:
    """Rules that a configuration breaks; `newest` is the version to take where it names none."""
    return tuple(
        rule
        for rule in rules()
        if rule.holds(configuration, newest)
        and CONDITIONS[rule.one](configuration, model)
        and CONDITIONS[rule.two](configuration, model)
    )
