"""What SGLang calls instead of its extend kernel: serve what fits, leave the rest to the engine and say so once."""

import logging
import re
from collections.abc import Callable
from typing import Any

import torch

from draftmark.kernels.mla_verify.launch import Workspace, mla_verify
from draftmark.kernels.mla_verify.problem import MAX_NODES, Problem
from draftmark.plugins.shadow import Shadow

Engine = Callable[..., Any]

LATENT = 512
ROPE = 64
POSITIONAL = 16
"""Arguments that SGLang passes by position, to its verify slot and to its extend function alike."""
NEUTRAL = {
    "skip_prefix_custom_mask": (True,),
    "sliding_window_size": (-1, None),
    "sinks": (None,),
    "window_kv_offsets": (None,),
    "xai_temperature_len": (-1, 0, None),
    "lse_extend": (None,),
    "skip_prefix": (False,),
    "skip_extend": (False,),
    "score_mod": (None,),
    "aux_tensors": (None,),
    "identity_kv_indices": (False,),
}
"""Options of the engine's kernel that ours has not, with the values at which they do nothing."""
IGNORED = frozenset({"logit_cap", "max_bs", "page_size", "extend_seq_lens_cpu"})
"""Options that are handled, or matter to the engine's own kernel only: indices name single slots at any page size."""

WORKSPACE = Workspace()
"""One a process: SGLang runs target and draft on one stream, one after the other."""


class Unfit(Exception):
    """A call that is left to the engine; the message says why."""


class Verifier:
    """Stands in for one backend's verify slot and extend function."""

    def __init__(self, *, engine: Engine, shadow: bool, logger: logging.Logger) -> None:
        self._engine = engine
        self._logger = logger
        self._shadow = Shadow(logger) if shadow else None
        self._told: set[str] = set()

    def verify(self, *arguments: Any, **options: Any) -> bool:
        """The verify slot: True where the output was written, False where the engine shall do it."""
        return self._serve(arguments, options)

    def extend(self, *arguments: Any, **options: Any) -> Any:
        """The extend function: short passes over a latent cache are ours, everything else is the engine's."""
        if is_short_latent_pass(arguments) and self._serve(arguments, options):
            return None
        if self._shadow:
            self._shadow.report()
        return self._engine(*arguments, **options)

    def _serve(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Run our kernel; False, and a line in the log, where it cannot: nothing of ours may end the server."""
        try:
            problem = read_call(arguments, options)
            if self._shadow is None:
                mla_verify(problem, out=arguments[3], workspace=WORKSPACE)
                return True
            engine_options = {name: value for name, value in options.items() if name != "max_bs"}
            self._engine(*arguments, **engine_options)
            self._shadow.compare(problem, mla_verify(problem, workspace=WORKSPACE), arguments[3])
        except Exception as reason:  # noqa: BLE001 - compilers, drivers and an engine that changed may fail in any way
            self._tell(f"{type(reason).__name__}: {reason}")
            return False
        return True

    def _tell(self, reason: str) -> None:
        """Log a reason once, whatever the sizes in it are."""
        line = reason.splitlines()[0]
        kind = re.sub(r"\d+", "#", line)
        if kind not in self._told:
            self._told.add(kind)
            self._logger.warning("left to SGLang's own kernel (said once): %s", line)


def is_short_latent_pass(arguments: tuple[Any, ...]) -> bool:
    """Whether an extend call is what the kernel was made for: few new tokens, keys of the latent's width."""
    if len(arguments) != POSITIONAL:
        return False
    query, most = arguments[0], arguments[12]
    return isinstance(most, int) and most <= MAX_NODES and query.shape[-1] == LATENT + ROPE


def is_neutral(name: str, value: object) -> bool:
    """Whether an option does nothing. A tensor is never read: during a graph's capture that would end the capture."""
    return not isinstance(value, torch.Tensor) and name in NEUTRAL and value in NEUTRAL[name]


def read_call(arguments: tuple[Any, ...], options: dict[str, Any]) -> Problem:
    """The engine's arguments as a problem; shapes and types only, nothing is read from the device.

    Raises:
        Unfit: the call asks for something that our kernel has not.
        ValueError: a tensor is not what it must be.
    """
    query, keys, values, out, cache, value_cache, query_indptr, cache_indptr, cache_indices = arguments[:9]
    mask, causal, mask_indptr, most, key_scale, value_scale, scale = arguments[9:]
    for name, value in options.items():
        if name not in IGNORED and not is_neutral(name, value):
            raise Unfit(f"{name} is a tensor" if isinstance(value, torch.Tensor) else f"{name}={value!r}")
    if query.shape[-1] != LATENT + ROPE or values.shape[-1] != LATENT:
        raise Unfit(f"width {query.shape[-1]} with values of {values.shape[-1]}, not {LATENT + ROPE} with {LATENT}")
    if keys.shape[1] != 1 or cache.shape[-2] != 1:
        raise Unfit(f"{keys.shape[1]} key heads, not one")
    if value_cache.data_ptr() != cache.data_ptr():
        raise Unfit("values that do not lie in the latent cache")
    if not causal:
        raise Unfit("attention that is not causal")
    if not cache.is_contiguous() or not out.is_contiguous():
        raise Unfit("a cache or an output that is not contiguous")
    width = query.shape[-1]
    return Problem(
        query=query,
        draft_keys=keys.view(-1, width),
        cache=cache.view(-1, width),
        query_indptr=query_indptr,
        cache_indptr=cache_indptr,
        cache_indices=cache_indices,
        max_nodes=most,
        scale=float(scale or width**-0.5),
        latent=LATENT,
        full_mask=mask,
        mask_indptr=None if mask is None else mask_indptr,
        logit_cap=float(options.get("logit_cap") or 0.0),
        key_scale=float(key_scale),
        value_scale=float(value_scale),
    )
