"""A checkpoint's folder: checked before anything is loaded, then loaded with transformers."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from draftmark.errors import BadInput

REQUIRED: Final = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""transformers fills these in by itself where they are missing, with another model's sizes."""
LENGTH: Final = "max_position_embeddings"


def read_config(folder: Path, *, context: int | None) -> PreTrainedConfig:
    """The configuration in `folder`, after checks that transformers does not make.

    Raises:
        BadInput: no such folder, no readable config.json, a field that is missing, an architecture that is not served.
    """
    path = folder / "config.json"
    for place, what in ((folder, "folder"), (path, "file")):
        if not place.exists():
            raise BadInput(f"no such {what}", place=str(place), remedy="give --model the folder of a checkpoint")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        raw = json.loads(path.read_text())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StrictDataclassError) as error:
        raise BadInput(f"transformers cannot read it: {error}", place=str(path), remedy="correct the file") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        cause = f"{config.model_type} is no causal language model in transformers"
        raise BadInput(cause, place=str(path), remedy="serve another one")
    text = config.get_text_config(decoder=True)
    sections = [raw] if text is config else [raw, *(value for value in raw.values() if isinstance(value, dict))]
    for name in REQUIRED if context else (*REQUIRED, LENGTH):
        if not any({name, text.attribute_map.get(name, name)} & section.keys() for section in sections):
            remedy = "give --context" if name == LENGTH else "take the file from the model's publisher"
            raise BadInput(f"it has no field {name}", place=str(path), remedy=remedy)
    for index, layer in enumerate(DynamicCache(config=config).layers):
        if type(layer) not in {DynamicLayer, DynamicSlidingWindowLayer}:
            raise BadInput(
                f"its cache ({type(layer).__name__}) is not made of keys and values alone, which the pool cannot hold",
                place=f"{config.model_type} layer {index}",
                remedy="serve a model with full, sliding-window or latent attention",
            )
    return config


def length(config: PreTrainedConfig) -> int:
    """Most tokens that the model was made for."""
    return int(getattr(config.get_text_config(decoder=True), LENGTH))


def load(folder: Path, config: PreTrainedConfig, *, device: str, dtype: str) -> tuple[PreTrainedModel, Any]:
    """The model on `device`, ready for inference, and its tokenizer; `dtype` "auto" is the checkpoint's.

    Raises:
        BadInput: a file is missing or broken, or the weights are not those that the configuration describes.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told apart below, in one line
        )
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"transformers cannot load it: {error}", place=str(folder), remedy="fetch its files") from error
    lacking = sorted([*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])])
    if lacking:
        raise BadInput(
            f"{len(lacking)} weights are missing or have other shapes than config.json says, {lacking[0]} first",
            place=str(folder),
            remedy="fetch config.json and the weights again, from one source",
        )
    return model.to(device).eval(), tokenizer


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of parameters and buffers; what is tied counts once."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def end_tokens(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, by the generation settings and the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*several, tokenizer.eos_token_id) if token is not None)
