"""What a GPU can run: methods of quantization and caches that ask for a newer card, data/capabilities.toml."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from draftmark.configuration import Configuration, EngineName
from draftmark.engines.offered import or_newest
from draftmark.engines.versions import parse_version
from draftmark.errors import BadInput
from draftmark.hardware import Device
from draftmark.model import Model


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A method that some versions of an engine run from one compute capability on."""

    engine: EngineName
    what: Literal["weights", "cache"]
    names: tuple[str, ...]
    least: int
    source: str
    since: str | None = None
    until: str | None = None
    note: str | None = None
    """How a card below is served all the same; None where the engine refuses it."""

    def about(self, engine: EngineName, version: str) -> bool:
        """Whether it is about this engine and version."""
        at = parse_version(version)
        return (
            self.engine == engine
            and (self.since is None or at >= parse_version(self.since))
            and (self.until is None or at < parse_version(self.until))
        )


@cache
def needs() -> tuple[Need, ...]:
    """Every rule."""
    text = files("draftmark").joinpath("data/capabilities.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["need"], tuple[Need, ...])


def capability(device: Device) -> int | None:
    """90 for sm_90; None where the device is not one of NVIDIA's or the catalogue does not say."""
    found = re.fullmatch(r"sm_(\d+)", device.architecture or "")
    return int(found[1]) if found else None


_FAMILIES = ("fp8", "awq", "gptq", "mxfp4", "compressed-tensors", "modelopt", "bitsandbytes", "gguf", "nvfp4")
"""Methods by what their names begin with; a flag's name may have more, like gptq_marlin or auto_awq."""


def check_method(model: Model, configuration: Configuration) -> None:
    """See that a method that is asked for is the one in which the checkpoint is stored.

    vLLM 0.32.0 (config/model.py) and SGLang 0.5.23 (configs/model_config.py) refuse most others: 'does not match the
    quantization method specified in the `quantization` argument'; SGLang quantizes some anew while it loads.

    Raises:
        BadInput: it is another one.
    """
    asked, stored = configuration.quantization, model.quantization
    if asked is None or stored is None or configuration.engine == "embedded":
        return
    own = next((name for name in _FAMILIES if stored.startswith(name)), None)
    other = next((name for name in _FAMILIES if asked.startswith(name)), None)
    if own is not None and other is not None and own != other:
        raise BadInput(
            f"{asked} is not how the checkpoint is stored ({stored}): refused, or quantized anew, which is not planned",
            place=f"--quantization ({model.name})",
            remedy="leave the flag out",
        )


def check_device(model: Model, configuration: Configuration, device: Device) -> tuple[str, ...]:
    """See that a GPU runs the weights and the cache that are asked for; what it runs in another way is said.

    Args:
        model: its quantization counts where the configuration names none.
        configuration: what is asked for.
        device: the GPU.

    Raises:
        BadInput: the engine refuses them on such a card.
    """
    has = capability(device)
    if has is None or configuration.engine == "embedded":
        return ()
    version = or_newest(configuration.engine, configuration.version)
    asked = {
        "weights": (configuration.quantization or model.quantization, f"--quantization ({model.name})"),
        "cache": (configuration.kv_dtype, "--kv-cache-dtype"),
    }
    notes = []
    for need in needs():
        value, place = asked[need.what]
        if value not in need.names or has >= need.least or not need.about(configuration.engine, version):
            continue
        if need.note is None:
            raise BadInput(
                f"{configuration.engine} {version} runs {value} from sm_{need.least} on, and "
                f"{device.name} is {device.architecture} ({need.source})",
                place=place,
                remedy="choose another quantization, a newer version, or another GPU",
            )
        notes.append(f"on {device.architecture} {need.note} ({need.source})")
    return tuple(notes)
