"""What an engine of some version cannot combine: data/combinations.toml, each rule with its source."""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.engines.offered import or_newest
from draftmark.engines.versions import parse_version
from draftmark.hardware import Device
from draftmark.model import Gqa, Mla, Model

PAGED_TREES = ("flashinfer", "fa3", "triton")
"""SGLang's attention backends that walk draft trees over pages (0.5.15.post1 and 0.5.23, speculative_hook.py)."""

FIXED_PAGES = ("flashmla", "cutlass_mla", "trtllm_mla", "trtllm_mha", "tokenspeed_mla", "cutedsl_mla")
"""SGLang's attention backends that have a page of their own, whatever is asked for."""

Condition = Callable[[Configuration, Model, Device | None], bool]
"""Whether a configuration of a model, on such a GPU (None where it is not known), is one."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Two conditions that exclude each other in some versions of an engine."""

    engine: str
    since: str
    one: str
    two: str
    source: str
    until: str | None = None
    device: str | None = None

    def holds(self, configuration: Configuration) -> bool:
        """Whether the rule is about this engine, version (the newest that was read where none is named) and device."""
        if self.engine != configuration.engine:
            return False
        version = parse_version(or_newest(configuration.engine, configuration.version))
        return (
            version >= parse_version(self.since)
            and (self.until is None or version < parse_version(self.until))
            and (self.device is None or self.device == configuration.device)
        )


def expandable(configuration: Configuration) -> bool:
    """Whether torch's expandable segments are asked for."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return any(name in names and "expandable_segments:True" in value for name, value in configuration.environment)


def attention_backend(configuration: Configuration, model: Model, device: Device | None) -> str | None:
    """SGLang's attention backend where it is named, or where a default with pages of its own takes its place.

    Sparse latent attention has its own, and latent attention on Blackwell's data centre GPUs takes trtllm_mla
    (0.5.15.post1, arg_groups/overrides.py); every other default walks trees over pages (server_args.py).
    """
    flags = configuration.flags
    named = [flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--attention-backend"]
    if named:
        return named[-1]
    if _selects(model):
        return "dsa"
    latent = any(isinstance(layer.mixer, Mla) for layer in model.layers)
    return "trtllm_mla" if latent and capability(device) in ("sm_100", "sm_103") else None


def capability(device: Device | None) -> str | None:
    """A GPU's compute capability; None where it is not known."""
    return device.architecture if device is not None else None


def _custom_all_reduce(configuration: Configuration, _: Model, device: Device | None) -> bool:
    """Both engines leave it off by themselves on more than two GPUs without NVLink.

    sglang 0.5.15.post1 custom_all_reduce_utils.py, vllm 0.32.0 custom_all_reduce.py: 'not supported on more than two
    PCIe-only GPUs'.
    """
    ranks = configuration.parallel.tensor
    joined = device is None or device.nvlink or ranks == 2
    return ranks > 1 and joined and "--disable-custom-all-reduce" not in configuration.flags


def _windows(model: Model) -> bool:
    return any(isinstance(layer.mixer, Gqa) and layer.mixer.window is not None for layer in model.layers)


def _heads_for_every_rank(configuration: Configuration, model: Model, _: Device | None) -> bool:
    """Whether fewer ranks than the context ranks share a KV head, or share its queries unevenly."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Gqa)]
    ranks, tensor = configuration.parallel.decode_context, configuration.parallel.tensor
    return any(ranks > max(1, tensor // one.kv_heads) or one.heads // one.kv_heads % ranks for one in mixers)


def _pages_without_trees(configuration: Configuration, model: Model, device: Device | None) -> bool:
    backend = attention_backend(configuration, model, device)
    own = backend in FIXED_PAGES or backend == "dsa"
    return backend is not None and backend not in PAGED_TREES and (own or (configuration.page or 1) > 1)


def _selects(model: Model) -> bool:
    return any(isinstance(layer.mixer, Mla) and layer.mixer.indexer is not None for layer in model.layers)


def _without_context_ranks(configuration: Configuration, model: Model, device: Device | None) -> bool:
    """Whether SGLang's attention backend is one without decode context ranks; on Hopper fa3 is the default."""
    backend = attention_backend(configuration, model, device) or ("fa3" if capability(device) == "sm_90" else None)
    return backend is not None and backend not in ("flashinfer", "flashmla", "triton")


def _own_draft(configuration: Configuration) -> bool:
    draft = configuration.speculative
    return draft is not None and draft.algorithm.upper() in ("STANDALONE", "DFLASH", "NGRAM")


CONDITIONS: Final[dict[str, Condition]] = {
    "decode context parallelism": lambda configuration, *_: configuration.parallel.decode_context > 1,
    "speculation": lambda configuration, *_: configuration.speculative is not None,
    "no latent attention": lambda _, model, __: not any(isinstance(layer.mixer, Mla) for layer in model.layers),
    "sparse latent attention off Blackwell": lambda _, model, device: (
        _selects(model) and capability(device) not in ("sm_100", "sm_103")
    ),
    "a backend without context ranks": _without_context_ranks,
    "anything": lambda *_: True,
    "expandable segments": lambda configuration, *_: expandable(configuration),
    "custom all-reduce": _custom_all_reduce,
    "trees": lambda configuration, *_: (
        (configuration.speculative is not None) and (configuration.speculative.top_k or 1) > 1
    ),
    "pages": _pages_without_trees,
    "DP attention": lambda configuration, *_: configuration.parallel.data_attention,
    "a draft of its own": lambda configuration, *_: _own_draft(configuration),
    "pipeline stages": lambda configuration, *_: configuration.parallel.pipeline > 1,
    "windows": lambda _, model, __: _windows(model),
    "selected blocks": lambda _, model, __: model.selects_blocks,
    "heads for every rank": _heads_for_every_rank,
    "KV connector": lambda configuration, *_: "--kv-transfer-config" in configuration.flags,
}
"""What the words in the table mean."""


@cache
def rules() -> tuple[Rule, ...]:
    """All rules."""
    text = files("draftmark").joinpath("data/combinations.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["rule"], tuple[Rule, ...])


def broken(configuration: Configuration, model: Model, device: Device | None = None) -> tuple[Rule, ...]:
    """Rules that a configuration breaks.

    Args:
        configuration: as asked, or with its defaults filled in.
        model: what it serves.
        device: the GPUs, which decide SGLang's attention backend and all-reduce; None where they are not known.
    """
    return tuple(
        rule
        for rule in rules()
        if rule.holds(configuration)
        and CONDITIONS[rule.one](configuration, model, device)
        and CONDITIONS[rule.two](configuration, model, device)
    )
