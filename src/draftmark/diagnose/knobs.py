"""The engines' own names for what a remedy moves, and how far each can go."""

from typing import Final, Literal

from draftmark.configuration import EngineName

Knob = Literal["fraction", "context", "chunk", "requests", "graphs", "pool", "gpus", "replicas"]

FLAGS: Final[dict[EngineName | None, dict[Knob, str]]] = {
    "sglang": {
        "fraction": "--mem-fraction-static",
        "context": "--context-length",
        "chunk": "--chunked-prefill-size",
        "requests": "--max-running-requests",
        "graphs": "--cuda-graph-max-bs",
        "pool": "--max-total-tokens",
        "gpus": "--tp-size",
        "replicas": "--dp-size",
    },
    "vllm": {
        "fraction": "--gpu-memory-utilization",
        "context": "--max-model-len",
        "chunk": "--max-num-batched-tokens",
        "requests": "--max-num-seqs",
        "graphs": "--max-cudagraph-capture-size",
        "pool": "--kv-cache-memory-bytes",
        "gpus": "--tensor-parallel-size",
        "replicas": "--data-parallel-size",
    },
    "embedded": {
        "fraction": "--mem-fraction",
        "context": "--context",
        "chunk": "--chunk",
        "requests": "--max-running",
        "pool": "--pool-tokens",
    },
    None: {
        "fraction": "the engine's memory fraction",
        "context": "the longest request",
        "chunk": "the prefill chunk",
        "requests": "the most requests at once",
        "graphs": "the captured batch sizes",
        "pool": "the pool",
        "gpus": "the GPUs that the model is split over",
        "replicas": "the replicas",
    },
}
"""How each engine spells each knob; an engine without a knob has no entry."""
DECODE_GRAPHS: Final = "--cuda-graph-max-bs-decode"
"""SGLang's name for the captured batch sizes: beside the old one in 0.5.15.post1, alone in 0.5.23."""
PREFILL_GRAPHS: Final = "--cuda-graph-max-bs-prefill"
"""The same of the graphs of prefill steps, in tokens; as old as the one for decode steps."""
VLLM_GRAPHS: Final = ("--max-cudagraph-capture-size", "--cuda-graph-sizes", "--max-num-seqs")
"""vLLM's, newest first. Before 0.9 there was none, and sizes up to the most requests (twice as many in 0.8) were
captured."""
ALSO: Final[dict[str, tuple[str, ...]]] = {
    "--cuda-graph-max-bs": (DECODE_GRAPHS,),
    "--tp-size": ("--tensor-parallel-size", "--tp"),
    "--dp-size": ("--data-parallel-size", "--dp"),
    "--mem-fraction-static": ("--mem-frac",),
    "--tensor-parallel-size": ("-tp",),
    "--data-parallel-size": ("-dp",),
    "--max-model-len": ("--max-seq-len",),
}
"""Other names under which the same is given or listed."""
LEAST: Final[dict[str, float]] = {
    "--cuda-graph-max-bs": 1,
    DECODE_GRAPHS: 1,
    PREFILL_GRAPHS: 1,
    "--cuda-graph-sizes": 1,
    "--max-cudagraph-capture-size": 1,
    "--max-running-requests": 1,
    "--max-num-seqs": 1,
    "--max-running": 1,
    "--dp-size": 1,
    "--data-parallel-size": 1,
    "--max-loras-per-batch": 1,
    "--max-loras": 1,
    "MAX_JOBS": 1,
    "--limit-mm-per-prompt": 0,
    "--hicache-size": 0,
    "--swap-space": 0,
    "--cpu-offload-gb": 0,
}
"""Below this a knob cannot be lowered."""
LEAST_CHUNK: Final = 256
"""Tokens; a smaller chunk costs more time than the memory that it saves is worth."""
CHUNK: Final = 4096
"""Tokens that are proposed where prompts are not cut at all."""
ALLOCATOR: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Names of the variable that sets PyTorch's allocator; the second is its name since PyTorch 2.9."""
HIGH_FRACTION: Final = 0.97
"""Above this nothing is left to raise: contexts and activations need the rest."""
