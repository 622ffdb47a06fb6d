"""GPUs that the environment of a launch command leaves visible, against those that its layout takes."""

from typing import Final

from draftmark.configuration import Configuration
from draftmark.errors import BadInput

VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_ALL: Final = ("NVIDIA_VISIBLE_DEVICES", "all")
_NONE: Final = ("", "none", "void", "-1")
_UNIQUE: Final = ("GPU-", "MIG-")
"""How a GPU's, or a slice's, own name begins."""


def check_visible(configuration: Configuration, count: int) -> None:
    """See that enough GPUs are visible, each named once, and all of them among the `count` that are planned for.

    CUDA stops at the first entry that is no device, and shows none where one is named twice (CUDA C++ Programming
    Guide, environment variables).

    Raises:
        BadInput: the engine would not find the GPUs that its layout takes.
    """
    for name, text in configuration.environment:
        if name not in VARIABLES or (name, text.strip()) == _ALL:
            continue
        devices = [] if text.strip() in _NONE else [entry.strip() for entry in text.split(",")]
        place = f"{name}={text}"
        for entry in devices:
            _check_entry(entry, place, count)
        if len(set(devices)) < len(devices):
            raise BadInput("names a GPU twice, and then none is visible", place=place, remedy="name each one once")
        needed = here(configuration)
        if len(devices) < needed:
            raise BadInput(
                f"shows {len(devices)} of the {needed} GPUs that the layout takes",
                place=place,
                remedy="name as many as the layout takes, or make the layout smaller",
            )


def _check_entry(entry: str, place: str, count: int) -> None:
    if entry.startswith("MIG-"):
        raise BadInput("slices of a GPU are not planned for", place=place, remedy="name whole GPUs")
    if entry.startswith(_UNIQUE):
        return
    if not entry.isascii() or not entry.isdigit():
        raise BadInput(f"{entry!r} is no GPU, and hides all that follow", place=place, remedy="write it like 0,1,2,3")
    if int(entry) >= count:
        more = f"plan for more: --gpu NAME:{int(entry) + 1}"
        raise BadInput(f"there is no GPU {entry} among {count}", place=place, remedy=more)


def here(configuration: Configuration) -> int:
    """GPUs that the layout takes on one of its hosts."""
    flags = configuration.flags
    text = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "--nnodes"), "1")
    hosts = int(text) if text.isdigit() and int(text) > 0 else 1
    return -(-configuration.parallel.gpus // hosts)
