"""A checkpoint's facts as a `Model`: what `draftmark plan MODEL` starts from."""

import re
from pathlib import Path
from typing import Final

from draftmark.checkpoint.architectures import build_blocks
from draftmark.checkpoint.blocks import Block
from draftmark.checkpoint.feed_forward import experts_of, has_experts
from draftmark.checkpoint.fields import Fields
from draftmark.checkpoint.files import Files, beside_config, in_folder
from draftmark.checkpoint.hub import on_hub
from draftmark.checkpoint.quantization import read_quantization
from draftmark.checkpoint.weights import from_sizes, from_tensors
from draftmark.errors import BadInput
from draftmark.model import Layer, Model, NoMixer
from draftmark.units import Tokens

_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")
_FAMILY_DEFAULTS: Final[dict[str, dict[str, int | bool]]] = {
    # What transformers' classes assume where a nested text_config leaves fields out.
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "gemma4_text": {"tie_word_embeddings": True},
}  # fmt: skip
_ROTARY: Final = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "mrope", "proportional")
_TIED_FAMILIES: Final = ("gemma",)


def load_model(model: str, *, revision: str | None = None) -> Model:
    """The facts of a checkpoint: `model` is a folder, a config.json, or a Hugging Face repository id.

    Raises:
        BadInput: there is no such thing, it cannot be reached or read, or its architecture is not known.
    """
    return read_model(find(model, revision=revision))


def find(model: str, *, revision: str | None = None) -> Files:
    """The files behind what a user calls a model.

    Raises:
        BadInput: there is no such thing, it cannot be reached, or it cannot be read.
    """
    path = Path(model).expanduser()
    if revision is not None and path.exists():
        cause = f"{model} lies on this machine and has no revisions"
        raise BadInput(cause, place="--revision", remedy="leave it out, or name a repository")
    if path.is_dir():
        return in_folder(path)
    if path.is_file():
        return beside_config(path)
    if _REPOSITORY.fullmatch(model) and not model.startswith("."):
        return on_hub(model, revision)
    raise BadInput(
        "no such model",
        place=model,
        remedy="give a folder with a config.json, a config.json itself, or a Hugging Face repository id",
    )


def read_model(files: Files) -> Model:
    """Translate a checkpoint's files.

    Raises:
        BadInput: a field is missing, or the architecture or quantization is not known.
    """
    outer = Fields(files.config, files.place)
    fields = _language(outer)
    architecture = _architecture(outer)
    blocks = build_blocks(architecture, fields)
    dtype = _dtype(outer, fields)
    quantization = read_quantization(outer, files.quantization, dtype)
    hidden, vocabulary = fields.integer("hidden_size", "n_embd"), fields.integer("vocab_size")
    tied = _tied(outer, fields)
    if files.tensors is not None:
        weights = from_tensors(files.tensors, len(blocks))
    else:
        weights = from_sizes(
            blocks,
            vocabulary=vocabulary,
            hidden=hidden,
            tied=tied,
            head=fields.maybe_integer("draft_vocab_size") or vocabulary,
            vision=_vision_parameters(outer),
            quantization=quantization,
        )
    return Model(
        name=files.name,
        architecture=architecture,
        source=files.place,
        revision=files.revision,
        layers=_layers(fields, blocks),
        hidden_size=hidden,
        intermediate_size=fields.maybe_size("intermediate_size", "n_inner") or 4 * hidden,
        vocabulary=vocabulary,
        context=_context(fields),
        dtype=dtype,
        tied_embeddings=tied,
        weights=weights,
        exact_weights=files.tensors is not None,
        experts=experts_of(fields),
        quantization=None if quantization.name == "none" else quantization.name,
        quantization_block=quantization.block,
        # MiniMax M3 states two numbers; vLLM builds as many as it has modules.
        draft_layers=fields.maybe_integer("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        vision=bool(outer.part("vision_config").values or outer.part("vit_config").values),
        kv_dtype=quantization.kv_dtype,
        vision_layers=outer.part("vision_config").maybe_integer("num_hidden_layers", "depth"),
        vision_width=outer.part("vision_config").maybe_integer("hidden_size"),
    )


def _language(outer: Fields) -> Fields:
    fields = outer.language()
    if fields is outer:
        return outer
    defaults = _FAMILY_DEFAULTS.get(fields.text("model_type") or "", {})
    return Fields({**defaults, **fields.values}, fields.place)


def _dtype(outer: Fields, fields: Fields) -> str:
    named = (part.text(name) for part in (fields, outer) for name in ("dtype", "torch_dtype"))
    return next((dtype for dtype in named if dtype), "bfloat16")


def _architecture(outer: Fields) -> str:
    names = outer.items("architectures")
    if not names:
        raise BadInput(
            "the config lacks 'architectures'", place=outer.place, remedy="pass the checkpoint's complete config.json"
        )
    return str(names[0])


def _layers(fields: Fields, blocks: list[Block]) -> tuple[Layer, ...]:
    """Nemotron-H's layers are their own kind each: there the block tells whether it holds experts."""
    mixed = any(isinstance(block.mixer, NoMixer) for block in blocks)
    return tuple(
        Layer(mixer=block.mixer, experts=block.experts > 0 if mixed else has_experts(fields, number, len(blocks)))
        for number, block in enumerate(blocks)
    )


def _vision_parameters(outer: Fields) -> int:
    """A vision tower: attention and two feed-forward matrices a layer; patches and projector are left out."""
    tower = outer.part("vision_config")
    layers = tower.maybe_integer("num_hidden_layers", "depth", "vt_num_hidden_layers")
    width = tower.maybe_integer("hidden_size", "vt_hidden_size")
    inner = tower.maybe_integer("intermediate_size", "vt_intermediate_size")
    if layers is None or width is None:
        return 0
    return layers * (4 * width**2 + 2 * width * (inner or 4 * width))


def _tied(outer: Fields, fields: Fields) -> bool:
    for part in (fields, outer):
        if part.values.get("tie_word_embeddings") is not None:
            return part.flag("tie_word_embeddings")
    return (fields.text("model_type") or "").startswith(_TIED_FAMILIES)


def _context(fields: Fields) -> Tokens:
    """The longest context, scaled rotary positions included.

    Raises:
        BadInput: the config does not say.
    """
    longest = fields.maybe_size("max_position_embeddings", "n_positions", "max_sequence_length")
    scaling = fields.part("rope_scaling" if fields.values.get("rope_scaling") is not None else "rope_parameters")
    kind, factor = scaling.text("rope_type") or scaling.text("type"), scaling.share("factor")
    if kind is not None and kind not in _ROTARY:
        raise BadInput(
            f"unknown kind of rotary positions {kind!r}", place=scaling.place, remedy=f"known: {', '.join(_ROTARY)}"
        )
    original = scaling.maybe_size("original_max_position_embeddings")
    if factor is not None and kind == "yarn" and original is not None:
        return Tokens(max(round(original * factor), longest or 0))
    if longest is None:
        longest = fields.integer("max_position_embeddings")
    if factor is not None and kind in ("linear", "dynamic"):
        return Tokens(round(longest * factor))
    return Tokens(longest)
