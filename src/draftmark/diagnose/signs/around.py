"""Signs of causes around the engine: its command line, ports, installation, model folder, build and disk."""

from typing import Final

from draftmark.diagnose.signs.pattern import Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    (
        "bad arguments",
        (": error: ",),
        (
            r"\b(?P<program>[\w./-]+(?: serve)?): error: (?:unrecognized arguments: (?P<unknown>\S.*)"
            r"|ambiguous option: (?P<ambiguous>\S+)|the following arguments are required: (?P<required>\S.*)"
            r"|argument (?P<argument>\S[^:]*): (?P<why>invalid choice: .*|invalid \S+ value: .*|expected .*argument.*"
            r"|not allowed with .*))"
        ),
    ),
    (
        "rendezvous port",
        ("server socket has failed",),
        r"server socket has failed to .*?(?:port: |:)(?P<port>\d{2,5})\b.*(?:EADDRINUSE|ddress already in use)",
    ),
    ("rendezvous port", ("failed : Address already",), r"<(?P<port>\d+)> failed : Address already in use"),
    (
        "engine's port",
        ("is not available in",),
        r"(?P<which>\w+_port|port_base) at (?P<port>\d+) is not available in \d+ seconds",
    ),
    ("engine's port", ("ZMQError",), r"ZMQError: Address already in use(?: \(addr='tcp://\S*?:(?P<port>\d+)'\))?"),
    (
        "HTTP port",
        ("ddress already", "address in use"),
        r"to bind on address \('[^']*', (?P<port>\d+)[^)]*\): (?:\[[Ee]rrno \d+\] )?address (?:already )?in use",
    ),
    (
        "address in use",
        ("ddress already",),
        r"(?<!failed : )(?<!ZMQError: )\bAddress already in use(?!\. Retrying with a new port)",
    ),
    (
        "launcher failed",
        (
            "docker: ",
            "Docker daemon",
            "ssh: ",
            "Permission denied (",
            "Host key",
            "srun: ",
            "sudo: ",
            "local forwarding",
        ),
        (
            r"^(?:docker|ssh|srun|sudo): (?P<said>(?:error: )?[A-Z].*|connect to host .*|a password is required"
            r"|.* not found)$"
            r"|^(?P<plain>Cannot connect to the Docker daemon.*|Host key verification failed.*"
            r"|Could not request local forwarding.*|(?:\S+@)?\S+: Permission denied \(.*\)\.?)$"
        ),
    ),
    (
        "not installed",
        ("python",),
        (
            r"(?:^|[ :'\"‘])(?P<python>[\w./-]*python[\d.]*)['\"’]?: (?:No such file or directory"
            r"|(?:command )?not found|executable file not found)"
        ),
    ),
    ("not installed", ("No module named",), r"No module named '?(?P<module>sglang|vllm|draftmark|torch)\b"),
    (
        "no such model",
        ("valid model identifier", "Repo id must", "file named config.json", "Repository Not Found", "is restricted"),
        (
            r"(?:^|[\s'\"])(?P<model>\S*[^\s'\"]) (?:is not a local folder and )?is not a valid model identifier"
            r"|Repo id must (?:be in the form|use alphanumeric).*: '(?P<repo>[^']*)'"
            r"|(?P<folder>\S+) does not appear to have a file named config\.json"
            r"|Repository Not Found for url: (?P<url>\S+)|Access to model (?P<gated>\S+) is restricted"
        ),
    ),
    ("disk full", ("No space left",), r"No space left on device"),
    ("illegal instruction", ("llegal instruction", "SIGILL"), r"[Ii]llegal instruction|SIGILL"),
    ("no kernel image", ("kernel image",), r"no kernel image is available for execution on the device"),
)
