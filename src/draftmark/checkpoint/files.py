"""A checkpoint's files on this machine: the config, ModelOpt's addition to it, and the tensors' headers."""

import json
from pathlib import Path
from typing import Any

import msgspec

from draftmark.checkpoint.headers import Tensor, local_tensors
from draftmark.errors import BadInput


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: the config, the tensors (None where only a config is at hand), and where it all lies."""

    place: str
    name: str
    config: dict[str, Any]
    quantization: dict[str, Any] | None = None
    """ModelOpt's hf_quant_config.json."""
    tensors: tuple[Tensor, ...] | None = None
    revision: str | None = None


def in_folder(folder: Path) -> Files:
    """The checkpoint in a folder.

    Raises:
        BadInput: there is no config.json, or a file cannot be read.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise BadInput("no config.json there", place=str(folder), remedy="give the folder that holds the checkpoint")
    quantization = folder / "hf_quant_config.json"
    return Files(
        place=str(config),
        name=folder.resolve().name,
        config=read_json(config),
        quantization=read_json(quantization) if quantization.is_file() else None,
        tensors=local_tensors(folder),
    )


def beside_config(config: Path) -> Files:
    """A config on its own; ModelOpt's file of the same name's stem may lie beside it."""
    stem = config.name.removesuffix("config.json")
    quantization = config.with_name(f"{stem}hf_quant_config.json")
    return Files(
        place=str(config),
        name=stem.rstrip("_-.").replace("--", "/") or config.resolve().parent.name,
        config=read_json(config),
        quantization=read_json(quantization) if quantization.is_file() else None,
        tensors=None,
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        BadInput: it is not one.
    """
    try:
        # Not msgspec: Nemotron-H's configs hold Infinity, which JSON lacks but Python's own reader takes.
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", place=str(path), remedy="download the file again") from error
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=str(path), remedy="check its permissions") from error
    if not isinstance(values, dict):
        raise BadInput("not a JSON object", place=str(path), remedy="give a checkpoint's config.json")
    return values
