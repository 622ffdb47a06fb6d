"""The SGLang plug-in: Draftmark's verify kernel in the Triton backend of models with latent attention.

SGLang loads it through the entry point group `sglang.srt.plugins` in every process and calls `register`. It fills the
verify call site of `TritonAttnBackend`, which fires for target-verify, and wraps the backend's extend function, through
which the draft model's own extend pass goes. What it cannot serve it leaves to the engine, and says so once in the log.

    DRAFTMARK_SGLANG=off       leaves SGLang as it is
    DRAFTMARK_SGLANG=shadow    the engine's kernel answers; ours runs beside it, and differences are logged
"""

import importlib.metadata
import importlib.util
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from draftmark.plugins import contract

VARIABLE: Final = "DRAFTMARK_SGLANG"
TARGET: Final = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend.__init__"

logger = logging.getLogger("draftmark.sglang")


def register() -> None:
    """Hook the backend's construction, if this SGLang is one that was checked. Never raises."""
    mode = os.environ.get(VARIABLE, "on").lower()
    if mode == "off":
        logger.info("%s=off: SGLang is left as it is", VARIABLE)
        return
    if mode not in ("on", "shadow"):
        logger.warning("%s=%s is none of on, off, shadow: SGLang is left as it is", VARIABLE, mode)
        return
    try:
        slot = contract.check(importlib.metadata.version("sglang"), installed_source())
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(TARGET, after_init(slot, shadow=mode == "shadow"), HookType.AFTER)
    except Exception as reason:  # noqa: BLE001 - a server starts, whatever is wrong with its packages or with us
        leave(reason)


def leave(reason: object) -> None:
    """Say in one line why nothing is hooked."""
    said = str(reason).partition("\n")[0] or type(reason).__name__
    logger.warning("SGLang is left as it is: %s", said)


def installed_source() -> str:
    """Source of the installed backend, found without importing it.

    Raises:
        OSError: SGLang, or the file, is not there.
    """
    package = importlib.util.find_spec("sglang")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("sglang is not installed")
    return Path(package.submodule_search_locations[0], contract.MODULE).read_text()


def after_init(slot: contract.Slot, *, shadow: bool) -> Callable[..., None]:
    """The hook that runs when a backend was constructed. It never raises."""

    def fill(result: None, backend: Any, *_: object, **__: object) -> None:
        del result
        try:
            put_in_place(backend, slot, shadow=shadow)
        except Exception as reason:  # noqa: BLE001 - this runs inside the engine's constructor
            leave(reason)

    return fill


def put_in_place(backend: Any, slot: contract.Slot, *, shadow: bool) -> None:
    """Fill a latent backend's verify slot and wrap its extend function; on AMD's GPUs the engine has its own slot."""
    if not backend.use_mla or backend.skip_prefill:
        return
    import torch
    from torch.compiler import disable

    from draftmark.kernels.mla_verify.hopper import obstacle
    from draftmark.plugins.verify import Verifier

    if torch.version.hip is not None:
        leave("its kernels are for NVIDIA's GPUs, and this PyTorch is for AMD's")
        return
    verifier = Verifier(engine=backend.extend_attention_fwd, shadow=shadow, logger=logger)
    verify, extend = disable(verifier.verify), disable(verifier.extend)  # type: ignore[no-untyped-call]
    setattr(backend, slot.switch, True)
    setattr(backend, slot.function, verify)
    backend.extend_attention_fwd = extend
    logger.info("verify kernel in place%s", ", in shadow mode" if shadow else "")
    if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0) and (why := obstacle()):
        logger.warning("the portable kernel runs in place of the Hopper one: %s", why)
