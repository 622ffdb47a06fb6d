"""Names, shapes and dtypes of a checkpoint's tensors: read from safetensors headers, never the weights themselves."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from draftmark.errors import BadInput

if TYPE_CHECKING:
    from huggingface_hub.utils._safetensors import SafetensorsRepoMetadata

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip
"""Bits an element, by the safetensors format's names."""


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One stored tensor."""

    name: str
    dtype: str
    elements: int

    @property
    def bytes(self) -> int:
        """As stored.

        Raises:
            BadInput: the dtype is not one of the format's.
        """
        bits = BITS.get(self.dtype)
        if bits is None:
            raise BadInput(
                f"unknown tensor dtype {self.dtype!r}",
                place=self.name,
                remedy="add its bits to draftmark/checkpoint/headers.py",
            )
        return (self.elements * bits + 7) // 8


def local_tensors(folder: Path) -> tuple[Tensor, ...] | None:
    """Tensors of the checkpoint in `folder`; None where it holds no safetensors files.

    Raises:
        BadInput: a file is missing or broken.
    """
    from huggingface_hub import get_local_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        return _tensors(get_local_safetensors_metadata(folder))
    except NotASafetensorsRepoError:
        return None
    except (SafetensorsParsingError, OSError, ValueError, KeyError) as error:
        raise BadInput(
            f"its safetensors headers cannot be read: {error}",
            place=str(folder),
            remedy="download the checkpoint again",
        ) from error


def hub_tensors(repo: str, revision: str | None, cache: Path, *, away: bool = False) -> tuple[Tensor, ...] | None:
    """Tensors of a repository on the Hugging Face Hub, by range requests; kept in `cache` by revision.

    None where the repository holds no safetensors files. With `away` the Hub is not asked.

    Raises:
        ConnectionError: it would have to be asked.
    """
    kept = cache / f"{repo.replace('/', '--')}-{revision}.json"
    if revision and kept.is_file():
        return msgspec.json.decode(kept.read_bytes(), type=tuple[Tensor, ...])
    if away:
        raise ConnectionError(f"the tensor headers of {repo} are not kept here")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        tensors = _tensors(HfApi().get_safetensors_metadata(repo, revision=revision))
    except NotASafetensorsRepoError:
        return None
    if revision:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.encode(tensors))
    return tensors


def _tensors(metadata: "SafetensorsRepoMetadata") -> tuple[Tensor, ...]:
    tensors = []
    for file in metadata.files_metadata.values():
        for name, tensor in file.tensors.items():
            tensors.append(Tensor(name=name, dtype=tensor.dtype, elements=tensor.parameter_count))
    return tuple(sorted(tensors, key=lambda tensor: tensor.name))
