"""What the SGLang plug-in relies on, read off SGLang's own source before anything is hooked: nothing is guessed."""

import ast
from dataclasses import dataclass
from typing import Final

MODULE: Final = "srt/layers/attention/triton_backend.py"
"""The file, below the sglang package."""
BACKEND: Final = "TritonAttnBackend"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Names of the verify call site: a switch, and the function that it calls before falling back to extend."""

    switch: str
    function: str


SUPPORTED: Final = {
    "0.5.15.post1": Slot(switch="use_verify_splitkv", function="verify_splitkv_fwd"),
    "0.5.23": Slot(switch="use_verify_shared_kv", function="verify_shared_kv_fwd"),
}
"""Versions whose published wheels were read, call by call."""

ARGUMENTS: Final = (
    "q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)",
    "k.contiguous()",
    "v.contiguous()",
    "o.view(-1, layer.tp_q_head_num, layer.v_head_dim)",
    "self.token_to_kv_pool.get_key_buffer(layer.layer_id)",
    "self.token_to_kv_pool.get_value_buffer(layer.layer_id)",
    "self.forward_metadata.qo_indptr",
    "kv_indptr",
    "kv_indices",
    "self.forward_metadata.custom_mask",
    "causal",
    "self.forward_metadata.mask_indptr",
    "self.forward_metadata.max_extend_len",
    "k_descale",
    "v_descale",
    "layer.scaling",
)
"""Positional arguments of the verify call and of the extend call behind it, as written there."""
KEYWORDS: Final = {
    "logit_cap",
    "sliding_window_size",
    "sinks",
    "window_kv_offsets",
    "xai_temperature_len",
    "max_bs",
}
ATTRIBUTES: Final = ("use_mla", "skip_prefill", "extend_attention_fwd")
"""What `__init__` sets besides the slot."""


class Broken(Exception):
    """The installed SGLang is not one that the plug-in was written for; the message says in what."""


def check(version: str, source: str) -> Slot:
    """The slot of this version, once its source was found to call it as expected.

    Raises:
        Broken: the version is not a supported one, or its source differs from the published wheel's.
    """
    slot = SUPPORTED.get(version)
    if slot is None:
        raise Broken(f"version {version} was not checked; supported are {', '.join(SUPPORTED)}")
    backend = next(
        (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == BACKEND), None
    )
    if backend is None:
        raise Broken(f"{MODULE} has no class {BACKEND}")
    methods = {node.name: node for node in backend.body if isinstance(node, ast.FunctionDef)}
    check_init(methods.get("__init__"), slot)
    check_calls(methods.get("forward_extend"), slot)
    return slot


def check_init(init: ast.FunctionDef | None, slot: Slot) -> None:
    """Whether `__init__` sets the slot and the attributes that the plug-in reads or replaces."""
    if init is None:
        raise Broken(f"{BACKEND} has no __init__")
    assigned = {
        target.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    for name in (slot.switch, slot.function, *ATTRIBUTES):
        if name not in assigned:
            raise Broken(f"{BACKEND}.__init__ does not set {name}")


def check_calls(forward: ast.FunctionDef | None, slot: Slot) -> None:
    """Whether `forward_extend` reads the switch, and calls the slot for target-verify and the extend function behind
    it with the known arguments."""
    if forward is None:
        raise Broken(f"{BACKEND} has no forward_extend")
    read = {node.attr for node in ast.walk(forward) if isinstance(node, ast.Attribute)}
    for name in (slot.switch, slot.function, "is_target_verify"):
        if name not in read:
            raise Broken(f"{BACKEND}.forward_extend does not use {name}")
    verify = check_call(forward, "verify", "max_bs")
    if keywords(verify) != KEYWORDS:
        raise Broken(f"the verify call has keywords {sorted(keywords(verify) ^ KEYWORDS)} more or less")
    check_call(forward, "extend", "page_size")


def check_call(forward: ast.FunctionDef, kind: str, mark: str) -> ast.Call:
    """The one call that has the keyword `mark`, once its positional arguments were found to be the known ones."""
    calls = [node for node in ast.walk(forward) if isinstance(node, ast.Call) and mark in keywords(node)]
    if len(calls) != 1:
        raise Broken(f"{BACKEND}.forward_extend has {len(calls)} calls with {mark}, not one")
    given = tuple(written(argument) for argument in calls[0].args)
    given = given[1:] if given[:1] == ("layer",) else given  # 0.5.23 has a function in between that drops it
    if given != ARGUMENTS:
        odd = next((name for name in given if name not in ARGUMENTS), f"{len(given)} arguments in another order")
        raise Broken(f"the {kind} call passes {odd}, which is unknown")
    return calls[0]


def written(argument: ast.expr) -> str:
    """An argument's source; where 0.5.23 leaves out a copy for diffusion models, the source of the usual case."""
    return ast.unparse(argument.body if isinstance(argument, ast.IfExp) else argument)


def keywords(call: ast.Call) -> set[str]:
    """Names of a call's keyword arguments."""
    return {keyword.arg or "**" for keyword in call.keywords}
