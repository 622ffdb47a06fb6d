"""Where in an engine an exception was raised: the functions in its traceback, by what they do."""

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from draftmark.observation import Phase

Activity = str
Subject = Literal["pinning", "encoder", "adapters"]
_WHOLE: Final = 1000

_FRAMES: Final[tuple[tuple[Activity, Phase, str], ...]] = (
    (
        "load",
        "weights",
        (
            r"in (?:load_weights?|load_model|_load_\w*weights?|process_weights_after_loading|weight_loader)\b"
            r"|Failed to load model - not enough GPU memory"
        ),
    ),
    ("prefill graphs", "graphs", r"/prefill_cuda_graph_runner\.py"),
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
_SUBJECTS: Final[tuple[tuple[Subject, int, str], ...]] = (
    (
        "pinning",
        6,
        (
            r"pin_memory\s*=|\.pin_memory\(|in pin_memory\b|cudaHost(?:Alloc|Register)|HostAllocator"
            r"|(?:pool_host|_host)\S*\.py"
        ),
    ),
    (
        "encoder",
        _WHOLE,
        (
            r"in (?:_execute_mm_encoder|embed_multimodal|get_multimodal_embeddings|_process_(?:image|video|audio)_input"
            r"|get_(?:image|video|audio)_features?|_get_chunked_\w*embedding\w*|get_embedding_and_mask)\b"
        ),
    ),
    (
        "adapters",
        _WHOLE,
        (
            r"lora.*\bin (?:init_memory_pool|init_buffers?|create_lora_\w+|_create_lora_modules|init_lora_\w+"
            r"|add_adapter|activate_adapter|set_lora|load_lora_\w+|_load_lora_\w+)\b"
        ),
    ),
)
"""What memory was wanted for, whatever the phase: how many of the last lines are looked at, and the functions."""
_COMPILED: Final = tuple((activity, phase, re.compile(pattern)) for activity, phase, pattern in _FRAMES)
_WANTED: Final = tuple((subject, last, re.compile(pattern)) for subject, last, pattern in _SUBJECTS)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine was doing, in which phase, and what for; each None where no function tells."""

    activity: Activity | None
    phase: Phase | None
    subject: Subject | None = None


def place(traceback: Iterable[str]) -> Place | None:
    """What a traceback's functions are known to do; None where none is known."""
    lines = list(traceback)
    subject = next((name for name, last, pattern in _WANTED if any(map(pattern.search, lines[-last:]))), None)
    for activity, phase, pattern in _COMPILED:
        if any(pattern.search(line) for line in lines):
            return Place(activity=activity, phase=phase, subject=subject)
    return Place(activity=None, phase=None, subject=subject) if subject is not None else None
