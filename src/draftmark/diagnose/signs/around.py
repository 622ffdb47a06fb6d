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
    (  # pydantic, of vLLM's settings and not of a request; the reason stands in a line below it
        "settings refused",
        ("validation error",),
        r"\b\d+ validation errors? for (?P<settings>\w*(?:Config|Args))\b",
    ),
    (
        "value refused",
        ("Value error, ", "Input should be "),
        (
            r"(?:^|\s{2})(?:Value error, (?P<reason>(?!.*\barchitecture).+?)(?: \[type=|$)"
            r"|(?P<should>Input should be .+?) \[type=\w+, input_value=(?P<given>.+?), input_type=)"
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
    (  # SGLang (0.5.15.post1, 0.5.23) lists all its ports, and names the one that is taken in the exception after it
        "engine's port",
        ("Port is already in use. dist_init_port=",),
        r"Port is already in use\. dist_init_port=",
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
        (
            "valid model identifier",
            "Repo id must",
            "file named config.json",
            "Repository Not Found",
            "is restricted",
            "load the configuration of",
            "find any model weights",
            "in the cached files",
            "Invalid repository ID",
        ),
        (
            r"(?:^|[\s'\"])(?P<model>\S*[^\s'\"]) (?:is not a local folder and )?is not a valid model identifier"
            r"|Repo id must (?:be in the form|use alphanumeric).*: '(?P<repo>[^']*)'"
            r"|(?P<folder>\S+) does not appear to have a file named config\.json"
            r"|Repository Not Found for url: (?P<url>\S+)|Access to model (?P<gated>\S+) is restricted"
            r"|Invalid repository ID or local directory specified: '(?P<directory>[^']*)'"
            r"|Can't load the configuration of '(?P<configless>[^']*)'"
            r"|Cannot find any model weights with [`'](?P<weightless>[^`']*)"
            r"|(?P<offline>couldn't find (?:them|it) in the cached files)"
        ),
    ),
    (
        "weights file",
        ("afetensor", "while deserializing header"),
        (
            r"No such file or directory: ['\"]?(?P<missing>[^'\"\s]+\.safetensors)"
            r"|SafetensorError: (?P<damaged>\S.*)|(?P<header>Error while deserializing header: \w+)"
        ),
    ),
    (
        "dtype",
        ("compute capability of at least",),
        r"(?P<dtype>B?float\w*) is only supported on GPUs with compute capability of at least (?P<least>[\d.]+\d)",
    ),
    ("disk full", ("No space left",), r"No space left on device"),
    ("illegal instruction", ("llegal instruction", "SIGILL"), r"[Ii]llegal instruction|SIGILL"),
    (  # as PyTorch, CUDA's runtime and NVML write it
        "driver",
        (
            "driver on your system",
            "driver version is insufficient",
            "version mismatch",
            "forward compatibility was attempted",
            "unsupported display driver",
        ),
        (
            r"(?P<old>NVIDIA driver on your system is too old)(?: \(found version (?P<version>\d+)\))?"
            r"|(?P<insufficient>driver version is insufficient for CUDA runtime version)"
            r"|(?P<reload>NVML/RM version mismatch|Driver/library version mismatch)"
            r"|(?P<forward>forward compatibility was attempted on non supported HW|unsupported display driver)"
        ),
    ),
    ("no kernel image", ("kernel image",), r"no kernel image is available for execution on the device"),
)
