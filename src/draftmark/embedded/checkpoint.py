"""A checkpoint's folder: checked before anything is loaded, then loaded with transformers."""

import json
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from draftmark.errors import BadInput

REQUIRED: Final = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""transformers fills these in by itself where they are missing, with another model's sizes."""
LENGTH: Final = "max_position_embeddings"


def read_config(folder: Path, *, context: int | None) -> PreTrainedConfig:
    """The configuration in `folder`, after checks that transformers does not make.

    Raises:
        BadInput: no such folder, no readable config.json, a field that is missing, an architecture without a causal LM.
    """
    path = folder / "config.json"
    raw = _read_json(path)
    kind = raw.get("model_type")
    if kind is None:
        raise BadInput("it has no field model_type", place=str(path), remedy="take the file from the model's publisher")
    if kind not in CONFIG_MAPPING:
        cause = f"transformers {transformers.__version__} does not know the architecture {kind}"
        raise BadInput(cause, place=str(path), remedy="upgrade transformers")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StrictDataclassError) as error:
        raise BadInput(f"transformers cannot read it: {error}", place=str(path), remedy="correct the field") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise BadInput(
            f"{kind} is no causal language model in transformers", place=str(path), remedy="serve another one"
        )
    wanted = REQUIRED if context else (*REQUIRED, LENGTH)
    _check_fields(raw, config, wanted, path)
    return config


def _read_json(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise BadInput("no such folder", place=str(path.parent), remedy="give --model the folder of a checkpoint")
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput("no such file", place=str(path), remedy="give --model the folder of a checkpoint") from None
    except ValueError as error:
        raise BadInput(f"it is not JSON: {error}", place=str(path), remedy="fetch the file again") from error
    if not isinstance(raw, dict):
        raise BadInput("it is no JSON object", place=str(path), remedy="fetch the file again")
    return raw


def _check_fields(raw: dict[str, Any], config: PreTrainedConfig, wanted: tuple[str, ...], path: Path) -> None:
    text = config.get_text_config(decoder=True)
    inner = [value for value in raw.values() if isinstance(value, dict)] if text is not config else []
    for name in wanted:
        known = {name, text.attribute_map.get(name, name)}
        if not any(known & fields.keys() for fields in (raw, *inner)):
            remedy = "give --context" if name == LENGTH else "take the file from the model's publisher"
            raise BadInput(f"it has no field {name}", place=str(path), remedy=remedy)


def model_length(config: PreTrainedConfig) -> int:
    """Most tokens that the model was made for."""
    return int(getattr(config.get_text_config(decoder=True), LENGTH))


def load_model(folder: Path, config: PreTrainedConfig, *, device: str, dtype: str) -> PreTrainedModel:
    """The model on `device`, ready for inference; `dtype` "auto" is the checkpoint's.

    Raises:
        BadInput: weights are missing, or have other shapes than the configuration says.
    """
    wanted = dtype if dtype == "auto" else getattr(torch, dtype)
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=wanted,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told apart below, in one line
        )
    except OSError as error:
        raise BadInput(f"its weights cannot be read: {error}", place=str(folder), remedy="fetch them again") from error
    lacking = sorted([*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])])
    if lacking:
        raise BadInput(
            f"{len(lacking)} weights are missing or have other shapes than config.json says, {lacking[0]} first",
            place=str(folder),
            remedy="fetch config.json and the weights again, from one source",
        )
    placed: PreTrainedModel = model.to(device).eval()
    return placed


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of parameters and buffers; what is tied counts once."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def load_tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer.

    Raises:
        BadInput: there is none that transformers can read.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"its tokenizer cannot be read: {error}", place=str(folder), remedy="fetch its files") from error


def end_tokens(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, by the generation settings and the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*several, tokenizer.eos_token_id) if token is not None)
