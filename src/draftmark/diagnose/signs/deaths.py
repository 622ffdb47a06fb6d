"""Signs that a process of the engine has ended, and how."""

from typing import Final

from draftmark.diagnose.signs.pattern import Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    ("killed", ("Killed",), r":\s*(?:line )?\d*:?\s*\d+ Killed\b|^Killed$"),
    # A code below 0 is the signal's number (multiprocessing), one above 128 is 128 + that number (shells, containers).
    # Only signals that nobody sends on purpose: not SIGINT, SIGQUIT and SIGTERM.
    (
        "child died",
        ("xit code", "xit Code", "xitcode", "terminated with", "proc(s): {", "with code", "exited with"),
        (
            r"(?:[Ee]xit ?[Cc]ode:? ?=?|terminated with|with code|exited with(?: status)?|proc\(s\): \{[^}]*': )"
            r"\s*(?P<code>-(?:4|6|7|8|9|11)|13[245679])\b"
        ),
    ),
    (  # systemd, and supervisord
        "child died",
        ("code=killed, status=", "code=dumped, status=", "terminated by SIG"),
        (
            r"code=(?:killed|dumped), status=(?P<signal>4|6|7|8|9|11)/[A-Z]+"
            r"|terminated by (?P<name>SIG(?:ILL|ABRT|BUS|FPE|KILL|SEGV))\b"
        ),
    ),
    (  # SGLang 0.4 prints what os.waitpid gives: the signal in the lowest 7 bits
        "child died",
        ("unexpectedly failed with an exit code",),
        r"unexpectedly failed with an exit code (?P<status>4|6|7|8|9|11|13[24569])\. pid",
    ),
    (
        "worker died",
        ("died unexpectedly", "died, exit code", "engine core exited unexpectedly"),
        (
            r"(?:Worker|Engine core) proc(?:ess)? (?P<worker>\S+) died unexpectedly(?: \(exit code: (?P<code>-?\w+)\))?"
            r"|RayWorkerProc rank=(?P<rank>\d+) died unexpectedly|engine core exited unexpectedly"
            r"|Worker \S+ pid \d+ died, exit code: (?P<exit>-?\d+)"
        ),
    ),
    (
        "segfault",
        ("Segfault", "Segmentation fault", "core dumped", "Fatal Python error", "Aborted", "Bus error"),
        (
            r"!!!!!!! Segfault encountered"
            r"|^(?:\S+: line \d+:\s*\d+ )?(?P<fault>Segmentation fault|Bus error|Aborted)"
            r"(?:\s{2,}|\s+\(core dumped\)|$)"
            r"|Fatal Python error: (?P<fatal>Segmentation fault|Bus error|Aborted)"
        ),
    ),
    (
        "asked to end",
        ("SIGTERM", "signal=SIG", "Gracefully"),
        r"SIGTERM received|\[shutdown\] \w+: trigger received signal=SIG(?:TERM|INT)|Gracefully exiting",
    ),
    (
        "ended itself",
        ("kill_process_tree", "SIGQUIT", "sigquit"),
        r"kill_process_tree called|SIGQUIT received|Received sigquit from a child process",
    ),
)
