"""Signs that memory was divided wrongly at the start, before any allocation failed."""

from typing import Final

from draftmark.diagnose.signs.pattern import N, Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    (
        "pool below context",
        ("max seq len",),
        (
            rf"max seq len \((?P<context>{N})\) is larger than the maximum number of tokens that can be stored in KV "
            rf"cache \((?P<tokens>{N})\)"
        ),
    ),
    (
        "pool below context",
        ("KV cache is needed",),
        (
            rf"max seq len \((?P<context>{N})\),? \(?(?P<needed>{N}) GiB KV cache is needed, which is larger than "
            rf"the available KV cache memory \((?P<available>{N}) GiB\)(?:.*?estimated maximum model length is "
            rf"(?P<possible>{N}))?"
        ),
    ),
    (
        "pool below context",
        ("KV cache is needed",),
        (
            rf"(?P<needed>{N}) GiB KV cache is needed,(?: which is)? larger than (?:the )?available"
            r"(?: KV cache memory)? "
            rf"\((?P<available>{N}) GiB\)"
        ),
    ),
    ("no room", ("cache blocks",), r"No available memory for the cache blocks"),
    (
        "no room",
        ("--mem-fraction-static",),
        (
            r"Not enough memory\. Please try to increase --mem-fraction-static"
            rf"(?:.*mem_fraction_static=(?P<fraction>{N}))?(?:.*weights fill >(?P<filled>\d+)% of HBM)?"
        ),
    ),
    (
        "no room",
        ("leave no GPU memory",),
        (
            r"Loaded weights leave no GPU memory for the KV cache under "
            rf"--mem-fraction-static=(?P<fraction>{N}?)\.?(?:\s|$)"
            rf"(?:.*Raise --mem-fraction-static above (?P<suggested>{N}))?(?:.*= (?P<minimum>0\.\d+)\))?"
        ),
    ),
    (
        "negative pool",
        ("Available KV cache memory",),
        rf"Available KV cache memory: (?P<available>-{N}|-?0\.0+) GiB",
    ),
    (
        "negative pool",
        ("reserved for KV Cache is",),
        rf"the rest of the memory reserved for KV Cache is (?P<available>-{N}|0\.0+)GiB",
    ),
    (  # vLLM, where the context is to be fitted to the pool
        "no room",
        ("to serve even a single token",),
        r"Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token",
    ),
    ("negative pool", ("profiled value",), r"larger than the profiled value (?P<tokens>-\d+)"),
    ("no blocks", ("blocks: 0",), r"# (?:GPU|CUDA|cuda|cpu) blocks: 0\b"),
    (
        "memory taken",
        ("less than desired",),
        (
            rf"Free memory on device (?:(?P<device>\S+) )?\((?P<free>{N})/(?P<capacity>{N}) GiB\) on startup is less "
            rf"than desired GPU memory utilization \((?P<fraction>{N}), (?P<wanted>{N}) GiB\)"
        ),
    ),
    (  # bytes in 0.6.6 and 0.8.5, GiB from 0.10.2 on
        "memory given back",
        ("Error in memory profiling",),
        (
            rf"Error in memory profiling\. Initial free memory (?P<before>{N})(?P<unit> GiB)?, "
            rf"current free memory (?P<after>{N})"
        ),
    ),
    ("memory unbalanced", ("unbalanced",), r"The memory capacity is unbalanced"),
    (
        "state pool",
        ("hybrid (mamba",),
        (
            rf"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache\. Computed max_mamba_cache_size="
            rf"(?P<slots>-?\d+) \(total_rest_memory=(?P<rest>{N}) GB, mamba_cache_per_req=(?P<each>{N}) MB\)"
        ),
    ),
    (
        "state pool",
        ("max_num_reqs=0",),
        (
            r"max_mamba_cache_size=(?P<slots>\d+), mamba_ratio=(?P<each_request>\d+), resulting "
            r"max_num_reqs=(?P<requests>0)\b"
        ),
    ),
    (
        "state blocks",
        ("Mamba cache blocks",),
        r"max_num_seqs \((?P<requests>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
    ),
    ("window pool", ("cannot hold even one",), r"SWA pool \((?P<tokens>\d+) tokens\) cannot hold even one request"),
    (
        "window pool",
        ("DSV4 SWA pool cap",),
        r"The DSV4 SWA pool cap \((?P<tokens>\d+) tokens, .*leaves no room for the full KV pool",
    ),
    (
        "multimodal profile",
        ("too short to hold",),
        (
            r"sequence length used for profiling .*= (?P<length>\d+)\) is too short to hold the multi-modal "
            r"embeddings in the worst case \((?P<tokens>\d+) tokens"
        ),
    ),
    ("too few GPUs", ("out of bounds", "device ordinal"), r"local rank \d+ is out of bounds|invalid device ordinal"),
    (
        "too few GPUs",
        ("available GPUs",),
        (
            r"(?:Tensor parallel|World) size \((?P<ranks>\d+)\) (?:cannot be|is) larger than the number of available "
            r"GPUs \((?P<gpus>\d+)\)"
        ),
    ),
    ("no GPU", ("NVIDIA driver", "CUDA GPUs"), r"Found no NVIDIA driver on your system|No CUDA GPUs are available"),
    (  # without the last words it is a warning
        "context beyond model",
        ("overriding this maximum",),
        (
            r"(?:context_length|max_model_len) \((?P<context>\d+)\) is greater than the derived "
            r"(?:context_length|max_model_len) \((?:\w+=)?(?P<derived>\d+).*To allow overriding this maximum"
        ),
    ),
)
