"""Signs of what the operating system refuses, and of libraries and compilers that are not there or do not fit."""

from typing import Final

from draftmark.diagnose.signs.pattern import Pattern

_SAID: Final = r"^(?!.*\b(?:WARNING|INFO|DEBUG)\b).*"
"""A line that is no mere remark: a warning that quotes an error is of something that the engine does without."""

PATTERNS: Final[tuple[Pattern, ...]] = (
    (  # vLLM 0.32's warning at the start says what would happen (`set_ulimit`)
        "too many files",
        ("Too many open files",),
        r"^(?!.*(?:\bWARNING\b|can cause fd limit errors)).*Too many open files(?P<system> in system)?",
    ),
    (
        "permission denied",
        ("Errno 13]", "Errno 30]"),
        _SAID + r"Error: \[Errno (?:13\] Permission denied|30\] Read-only file system): '(?P<path>[^']+)'",
    ),
    (  # NCCL
        "permission denied",
        ("shared memory segment",),
        r"Error while creating shared memory segment (?P<path>/\S+).*Permission denied",
    ),
    (
        "library missing",
        ("cannot open shared object file",),
        _SAID + r"Error: (?P<library>[\w./+-]+\.so[\w.]*): cannot open shared object file",
    ),
    (
        "library missing",
        ("No module named",),
        _SAID + r"Error: No module named '?(?P<module>sgl_kernel|flashinfer|triton)\b",
    ),
    (  # PyTorch 2.13 and earlier, Triton, FlashInfer, and the shell
        "compiler missing",
        ("nvcc", "CUDA_HOME", "C compiler", "ninja", "Ninja"),
        (
            _SAID + r"(?:Error: (?:Could not find (?P<sought>nvcc)\b|Failed to find (?P<c>C compiler)"
            r"|(?P<toolkit>CUDA_HOME environment variable is not set|CUDA was not found on the system)"
            r"|(?P<ninja>Ninja) is required to load C\+\+ extensions"
            r"|\[Errno 2\] No such file or directory: '(?P<file>(?:[^']*/)?(?:nvcc|ninja))')"
            r"|(?:^|[ :/])(?P<shell>nvcc|ninja): (?:command )?not found)"
        ),
    ),
    (
        "build mismatch",
        ("GLIBC", "undefined symbol"),
        (
            _SAID + r"(?:version [`'](?P<needed>GLIBC(?:XX)?_[\d.]+)' not found"
            r"|Error: (?P<library>\S+\.so[\w.]*): undefined symbol: (?P<symbol>\w+))"
        ),
    ),
)
