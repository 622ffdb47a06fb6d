"""Signs that the host's memory ran out, which is not the GPU's."""

import re
from typing import Final

from draftmark.diagnose.signs.pattern import N, Pattern

COMPILERS: Final = (
    "cicc", "ptxas", "nvcc", "cudafe++", "cc1plus", "cc1", "clang++", "clang", "g++", "c++", "ninja",
)  # fmt: skip
"""Programs that compile kernels, by the names under which they are killed."""
_COMPILER: Final = "|".join(map(re.escape, COMPILERS))

PATTERNS: Final[tuple[Pattern, ...]] = (
    (
        "host memory short",
        ("Not enough host memory",),
        rf"Not enough host memory.*?Requesting (?P<wanted>{N}) GB but only have (?P<free>{N}) GB free",
    ),
    (
        "oom killer",
        ("Kill",),
        (
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process (?:\d+ )?\((?P<program>[^)]+)\)"
            r"(?:.*anon-rss:(?P<kib>\d+)kB)?"
        ),
    ),
    (  # the kernel, systemd, and Kubernetes
        "oom killer",
        ("oom-kill", "OOM killer", "OOMKilled"),
        (
            r"invoked oom-killer|oom-kill:constraint=|Failed with result 'oom-kill'"
            r"|has been killed by the OOM killer|\bOOMKilled\b"
        ),
    ),
    (
        "compiler killed",
        ("Killed", "due to signal 9"),
        (
            rf"'(?P<program>{_COMPILER})' died due to signal 9|Killed signal terminated program (?P<terminated>\S+)"
            rf"|\b\d+ Killed\s.*?(?:^|[\s/\"])(?P<named>{_COMPILER})\b"
        ),
    ),
    (
        "Ray's memory monitor",
        ("low on memory", "memory usage threshold"),
        (
            r"killed due to the node running low on memory"
            rf"|was (?P<used>{N})GB / (?P<total>{N})GB \({N}\), which exceeds the memory usage threshold of "
            rf"(?P<threshold>{N}\d*)"
        ),
    ),
    (  # a registration that fails and is done without (vLLM's offloading) is no trouble
        "pinning",
        ("cudaHost",),
        r"cudaHost(?:Register|Alloc)(?!.*(?:will still work|=712))\b.*(?:failed|out of memory)",
    ),
)
