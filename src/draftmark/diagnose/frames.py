"""Where in an engine an exception was raised: the functions in its traceback, by what they do."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from draftmark.observation import Phase

Activity = str

_FRAMES: Final[tuple[tuple[Activity, Phase, str], ...]] = (
    (
        "load",
        "weights",
        r"in (?:load_weights?|load_model|_load_\w*weights?|process_weights_after_loading|weight_loader)\b",
    ),
    (
        "graphs",
        "graphs",
        r"in (?:capture|capture_model|capture_one\w*|init_device_graphs|capture_\w*graphs?)\b|cuda_graph",
    ),
    ("graphs", "graphs", r"capture_model\b|torch\.cuda\.graph\("),
    (
        "pool",
        "pool",
        r"^(?!.*lora).*in (?:initialize_kv_cache\w*|allocate_kv_cache\w*|init_memory_pool|_create_buffers|_reserve)\b",
    ),
    ("sampler", "warm-up", r"in _?dummy_sampler_run\b|in _?dummy_pooler_run\b"),
    ("profile", "profile", r"in (?:profile_run|determine_available_memory|determine_num_available_blocks)\b"),
    ("logits", "prefill", r"prompt_logprobs|log_softmax|in compute_logits\b|in get_logprobs\b|logits_processor\.py"),
    ("prefill", "prefill", r"in (?:forward_extend|_execute_extend|forward_prefill|forward_split_prefill|_prefill)\b"),
    ("decode", "decode", r"in (?:forward_decode|_execute_decode|_decode)\b"),
)
"""Activity, the phase that it belongs to, and its functions; what is listed first wins, as it calls what follows."""
_COMPILED: Final = tuple((activity, phase, re.compile(pattern)) for activity, phase, pattern in _FRAMES)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine was doing, and in which phase."""

    activity: Activity
    phase: Phase


def place(traceback: Iterable[str]) -> Place | None:
    """What a traceback's functions are known to do; None where none is known."""
    lines = list(traceback)
    for activity, phase, pattern in _COMPILED:
        if any(pattern.search(line) for line in lines):
            return Place(activity=activity, phase=phase)
    return None
