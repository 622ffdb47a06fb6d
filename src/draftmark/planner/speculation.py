"""Speculation as it is asked for: whether there is a draft at all, and what a draft on its own implies."""

from typing import Final

from draftmark.configuration import Configuration, EngineName, Speculative
from draftmark.engines.offered import choices, or_newest, since
from draftmark.errors import BadInput
from draftmark.model import Model

WITHOUT_DRAFT: Final[dict[EngineName, tuple[str, ...]]] = {
    "sglang": ("NGRAM", "NONE"),
    "vllm": ("ngram", "ngram_gpu", "suffix"),
}
"""Algorithms that draft from the text itself: they hold no weights and no cache."""
BUILT_IN: Final[dict[EngineName, tuple[str, ...]]] = {"sglang": ("EAGLE", "NEXTN"), "vllm": ("mtp",)}
"""Algorithms that can draft with layers of the model itself; vLLM's older names of `mtp` end on it."""
UNREAD: Final[dict[EngineName, tuple[str, ...]]] = {
    "sglang": ("DSPARK", "UNO", "FROZEN_KV_MTP"),
    "vllm": ("dspark", "custom_class", "extract_hidden_states", "medusa", "mlp_speculator"),
}
"""Algorithms whose memory was not read in the engine."""
_FLAG: Final[dict[EngineName, str]] = {"sglang": "--speculative-algorithm", "vllm": "--speculative-config"}
_UNLISTED: Final = ("Qwen3NextForCausalLM",)
"""Models that come with draft layers which their config does not count."""
_IMPLIED: Final = (("Eagle3", "EAGLE3"), ("Eagle", "EAGLE"), ("NextN", "NEXTN"))
"""SGLang's algorithm by a part of the draft's architecture."""


def drafts(configuration: Configuration) -> bool:
    """Whether a draft with weights and a cache of its own is run."""
    asked = configuration.speculative
    return asked is not None and _named(configuration) not in WITHOUT_DRAFT.get(configuration.engine, ())


def has_draft_layers(model: Model) -> bool:
    """Whether draft layers lie in the model itself, by its config or by its tensors."""
    stored = any(group.role == "draft" for group in model.weights)
    return bool(model.draft_layers) or stored or model.architecture in _UNLISTED


def check_speculation(model: Model, configuration: Configuration, draft: Model | None) -> None:
    """See that the algorithm is one of the version's, and that there is something to draft with.

    Raises:
        BadInput: it is unknown, its memory was not read, or its draft is missing.
    """
    asked, engine = configuration.speculative, configuration.engine
    if asked is None or engine == "embedded":
        return
    name, flag = _named(configuration), _FLAG[engine]
    known = choices(engine, flag, configuration.version)
    if known and name not in (*known, "NONE"):
        first = since(engine, flag, name)
        came = f"{engine} has it from {first} on; " if first is not None else ""
        raise BadInput(
            f"{engine} {or_newest(engine, configuration.version)} has no {asked.algorithm!r}",
            place=flag,
            remedy=f"{came}known: {', '.join(known)}",
        )
    if name in UNREAD[engine]:
        raise BadInput(f"it is not known what {asked.algorithm} takes", place=flag, remedy="plan without it")
    for field in ("steps", "top_k", "draft_tokens", "window"):
        value = getattr(asked, field)
        if value is not None and value < 1:
            raise BadInput(f"{field} of {value} is less than 1", place=flag, remedy="give a positive number")
    if drafts(configuration) and draft is None and not _drafts_with_itself(name, model, configuration):
        raise BadInput(
            f"{asked.algorithm} needs a draft model, and {model.name} has no draft layers of its own for it",
            place=flag,
            remedy="name the draft with --draft, or in the command, or leave speculation out",
        )
    if asked.draft_tokens is None and drafts(configuration) and (engine == "vllm" or name == "DFLASH"):
        wanted = "num_speculative_tokens" if engine == "vllm" else "--speculative-num-draft-tokens"
        raise BadInput(f"{wanted} is missing", place=flag, remedy="say how many tokens are drafted at once")


def foreign(model: Model, draft: Model | None) -> tuple[str, ...]:
    """Says so where a draft has another vocabulary; its cache and weights count all the same."""
    if draft is None or draft.vocabulary == model.vocabulary:
        return ()
    words = f"{draft.name} has {draft.vocabulary:,} tokens in its vocabulary and {model.name} {model.vocabulary:,}"
    return (f"{words}: see that the draft was made for this model",)


def _named(configuration: Configuration) -> str:
    """The algorithm in the engine's spelling: SGLang takes either case."""
    name = configuration.speculative.algorithm if configuration.speculative is not None else ""
    return name.upper() if configuration.engine == "sglang" else name


def _drafts_with_itself(name: str, model: Model, configuration: Configuration) -> bool:
    able = name in BUILT_IN[configuration.engine] or (configuration.engine == "vllm" and name.endswith("_mtp"))
    return able and has_draft_layers(model)


def implied(configuration: Configuration, model: Model, draft: Model, named: str) -> Speculative:
    """Speculation as a draft on its own implies it, by the draft's architecture; `named` is what the user calls it.

    Raises:
        BadInput: the draft does not tell, or the engine wants to be told more.
    """
    if configuration.engine == "vllm":
        raise BadInput(
            "vLLM wants to be told how many tokens are drafted",
            place="--draft",
            remedy='paste a command with --speculative-config \'{"model": "DRAFT", "num_speculative_tokens": N}\'',
        )
    if draft is model:
        raise BadInput(
            "the model itself is no draft",
            place="--draft",
            remedy="paste a command with --speculative-algorithm EAGLE for draft layers of its own",
        )
    algorithm = next((name for part, name in _IMPLIED if part in draft.architecture), "STANDALONE")
    if algorithm == "STANDALONE" and draft.vocabulary != model.vocabulary:
        raise BadInput(
            f"{draft.name} has {draft.vocabulary} tokens in its vocabulary and {model.name} {model.vocabulary}",
            place="--draft",
            remedy="give a draft that was made for the model",
        )
    return Speculative(algorithm=algorithm, draft_model=named)
