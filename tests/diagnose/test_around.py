"""Causes around an engine: which port it is that is taken, and which flag moves it; command lines; model folders."""

import pytest

from tests.diagnose.logs import AFTER_WEIGHTS, OUT_OF_MEMORY, SCENARIO, VLLM, codes, moves, of

TORCH = (  # PyTorch 2.13, and up to 2.4
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    ),
    (
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has "
        "failed to bind to [::]:{port} (errno: 98 - Address already in use). The server socket has failed to bind to "
        "0.0.0.0:{port} (errno: 98 - Address already in use).\n"
    ),
)
NCCL = (
    "host:42:42 [0] misc/socket.cc:52 NCCL WARN socketBind: bind to 10.0.0.1<{port}> failed : Address already in use\n"
)
SGLANG = SCENARIO[: SCENARIO.index("[2026-05-30 14:00:10 TP3]")]


def sglang(arguments: str) -> str:
    return SGLANG.replace("page_size=64", f"page_size=64, {arguments}")


@pytest.mark.parametrize("message", [*TORCH, NCCL])
@pytest.mark.parametrize(
    ("before", "flag"),
    [
        (sglang("port=30000, dist_init_addr='10.0.0.1:29500', nccl_port=None"), "--dist-init-addr"),
        (sglang("port=30000, dist_init_addr=None, nccl_port=29500"), "--nccl-port"),
        (sglang("port=30000, dist_init_addr='10.0.0.1:20000', nccl_port=29500"), "--nccl-port"),
        (SGLANG, "--dist-init-addr"),
        (VLLM, "--master-port"),
        (VLLM.replace("'model': 'm'", "'model': 'm', 'master_port': 29500"), "--master-port"),
        ("MASTER_PORT=29500\n" + VLLM, "MASTER_PORT"),
        ("VLLM_PORT=29500\n" + VLLM, "VLLM_PORT"),
        ("", "MASTER_PORT"),
    ],
)
def test_the_port_of_a_rendezvous_is_not_the_http_port(before: str, flag: str, message: str) -> None:
    (finding,) = of(before + message.format(port=29500)).findings
    assert (finding.code, finding.confidence) == ("address-in-use", "certain")
    assert moves(finding) == {flag: ("set", "another port than 29500")}
    assert "29500" in finding.claim


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (
            "ERROR:  [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
            "30000",
        ),
        (
            "[Errno 98] error while attempting to bind on address ('::', 8000, 0, 0): [errno 98] address in use",
            "8000",
        ),
        ("OSError: [Errno 98] Address already in use", None),
    ],
)
def test_the_http_port_keeps_its_flag(line: str, number: str | None) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert finding.code == "address-in-use"
    assert moves(finding) == {"--port": ("set", f"another one than {number}" if number else None)}
    assert finding.confidence == ("certain" if number else "likely")
    known = VLLM.replace("'model': 'm'", "'model': 'm', 'port': 8123")
    assert moves(of(f"{known}OSError: [Errno 98] Address already in use\n").findings[0])["--port"][1] == (
        "another one than 8123"
    )


@pytest.mark.parametrize(
    ("name", "flag"),
    [("dist_init_port", "--dist-init-addr"), ("port_base", "--dist-init-addr"), ("nccl_port", "--nccl-port"),
     ("scheduler_input_port", "--dist-init-addr")],
)  # fmt: skip
def test_sglang_names_its_ports_itself(name: str, flag: str) -> None:
    line = f"ValueError: {name} at 25000 is not available in 30 seconds. {name} is used by a process already.\n"
    assert moves(of(SGLANG + line).findings[0]) == {flag: ("set", "another port than 25000")}


def test_a_port_of_zmq_is_named_with_its_number() -> None:
    line = "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:25001')\n"
    assert moves(of(SGLANG + line).findings[0]) == {"--dist-init-addr": ("set", "another port than 25001")}
    rpc = VLLM.replace("'model': 'm'", "'model': 'm', 'data_parallel_rpc_port': 25001")
    assert list(moves(of(rpc + line).findings[0])) == ["--data-parallel-rpc-port"]


def test_a_port_that_is_tried_again_is_no_trouble() -> None:
    line = "WARNING 07-02 10:00:00 [parallel.py:746] Address already in use. Retrying with a new port.\n"
    assert of(VLLM + line).findings == ()


def test_a_port_after_an_out_of_memory_is_not_the_cause() -> None:
    assert "address-in-use" not in codes(of(AFTER_WEIGHTS + OUT_OF_MEMORY + TORCH[0].format(port=29500)))


@pytest.mark.parametrize(
    ("line", "claim", "expected"),
    [
        ("vllm serve: error: unrecognized arguments: --max-model-length 8192", "--max-model-length",
         {"--max-model-len": ("set", None)}),
        ("sglang serve: error: unrecognized arguments: --mem-fraction-statics=0.9 --quite-new", "--quite-new",
         {"--mem-fraction-static": ("set", None), "--quite-new": ("cannot help", None)}),
        ("x.py: error: argument --kv-cache-dtype: invalid choice: 'fp8_e5' (choose from 'auto', 'fp8_e5m2')",
         "invalid choice: 'fp8_e5'", {"--kv-cache-dtype": ("set", "fp8_e5m2")}),
        ("launch_server.py: error: argument --tp-size: invalid choice: 3 (choose from auto, fp8_e5m2)",
         "invalid choice: 3", {"--tp-size": ("set", None)}),
        ("api_server.py: error: argument --tensor-parallel-size/-tp: expected one argument", "expected one argument",
         {"--tensor-parallel-size": ("set", None)}),
        ("api_server.py: error: argument --max-num-seqs: invalid int value: 'many'", "invalid int value: 'many'",
         {"--max-num-seqs": ("set", None)}),
        ("launch_server.py: error: the following arguments are required: --model-path/--model", "--model-path",
         {"--model-path/--model": ("set", None)}),
        ("api_server.py: error: ambiguous option: --max-num could match --max-num-seqs, --max-num-batched-tokens",
         "--max-num", {"--max-num": ("set", None)}),
    ],
)  # fmt: skip
def test_a_command_line_that_was_not_understood(line: str, claim: str, expected: dict[str, object]) -> None:
    (finding,) = of(f"usage: x [-h] [--model MODEL]\n{line}\n").findings
    assert (finding.code, finding.severity, finding.confidence) == ("bad-arguments", "fatal", "certain")
    assert claim in finding.claim
    assert moves(finding) == expected


def test_other_errors_of_programs_are_no_arguments() -> None:
    assert codes(of("ld: error: unable to find library -lcuda\nclang: error: linker command failed\n")) == ["no-engine"]


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("OSError: kimi is not a local folder and is not a valid model identifier listed on 'https://hf.co'", "kimi"),
        ("OSError: /models/kimi does not appear to have a file named config.json. Checkout 'h'", "/models/kimi"),
        (("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
         "'/models/no'. Use `repo_type` argument if needed."), "/models/no"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_there(line: str, model: str) -> None:
    (finding,) = of(f"{VLLM}{line}\n").findings
    assert (finding.code, finding.confidence) == ("no-such-model", "certain")
    assert finding.claim.startswith(f"{model} is neither")


def test_a_generation_config_that_is_not_there_is_no_trouble() -> None:
    line = "[2026-05-30 14:00:00] Failed: /m does not appear to have a file named generation_config.json.\n"
    assert of(line + SGLANG).findings == ()


@pytest.mark.parametrize(
    ("text", "said"), [("", "it is empty"), ("\n\n \n", "it is empty"),
                       ("total 8\ndrwxr-xr-x models\n", "nothing in it"),
                       ('{"id": 1, "error": "no"}\n', "nothing in it")],
)  # fmt: skip
def test_a_file_that_is_no_engines_log_is_called_so(text: str, said: str) -> None:
    (finding,) = of(text).findings
    assert (finding.code, finding.severity) == ("no-engine", "note")
    assert finding.claim.startswith(said)


LAUNCHERS = (
    "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]',
    "ssh: connect to host gpu1 port 22: Connection refused",
    "ssh: Could not resolve hostname gpu1: Name or service not known",
    "user@gpu1: Permission denied (publickey,password).",
    "Host key verification failed.",
    "Could not request local forwarding.",
    "srun: error: Unable to allocate resources: Invalid account",
    "sudo: a password is required",
)


@pytest.mark.parametrize("line", LAUNCHERS)
def test_a_launcher_that_failed_is_no_engine(line: str) -> None:
    (finding,) = of(f"{line}\n\nRun 'docker run --help' for more information\n").findings
    assert (finding.code, finding.confidence) == ("launcher-failed", "certain")
    assert finding.claim.endswith(
        line.partition(": ")[2] if line.startswith(("docker", "ssh", "srun", "sudo")) else line
    )
    assert "launcher-failed" not in codes(of(SGLANG + line + "\n")), "the engine had begun"


@pytest.mark.parametrize(
    "line",
    [
        "env: ‘python3’: No such file or directory",
        "x: 1: exec: python3: not found",
        "bash: line 1: python3: command not found",
        'docker: Error response from daemon: exec: "python3": executable file not found in $PATH: unknown.',
    ],
)
def test_a_python_that_is_not_there(line: str) -> None:
    findings = of(line + "\n").findings
    assert "not-installed" in [finding.code for finding in findings]
    (claim,) = [finding.claim for finding in findings if finding.code == "not-installed"]
    assert claim == "there is no python3 where the engine was to start"


def test_a_gated_model_wants_a_token() -> None:
    (finding,) = of(VLLM + "Access to model meta-llama/Llama-3.1-70B is restricted. You must have access.\n").findings
    assert finding.claim == "meta-llama/Llama-3.1-70B is gated: the engine may not read it"
    assert moves(finding) == {"HF_TOKEN": ("set", None)}


def test_a_python_that_a_running_engine_looks_for_is_not_its_own() -> None:
    assert "not-installed" not in codes(of(SGLANG + "sh: 1: python: not found\n"))


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        (
            "OSError: Can't load the configuration of '/models/q'. If you were trying to load it from the hub",
            "/models/q is neither a folder of a checkpoint nor a model on the hub that can be read",
        ),
        (
            "RuntimeError: Cannot find any model weights with `/models/q`",
            "/models/q holds no weights that the engine can load",
        ),
        (
            (
                "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them "
                "in the cached files."
            ),
            "the hub cannot be reached, and m is not in the cache of this machine",
        ),
    ],
)
def test_what_of_a_model_is_not_there(line: str, claim: str) -> None:
    (finding,) = of(VLLM + line + "\n").findings
    assert (finding.code, finding.confidence, finding.claim) == ("no-such-model", "certain", claim)
    assert moves(finding) == {"--model": ("set", None)}


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        (
            'FileNotFoundError: No such file or directory: "/models/q/model-00017-of-00092.safetensors"',
            "/models/q/model-00017-of-00092.safetensors is not there",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            "a file of weights cannot be read: it is not whole",
        ),
        (
            "Exception: Error while deserializing header: HeaderTooLarge",
            "a file of weights cannot be read: it is not whole",
        ),
    ],
)
def test_weights_that_are_not_whole(line: str, claim: str) -> None:
    (finding,) = of(VLLM + line + "\n").findings
    assert (finding.code, finding.claim) == ("weights-unreadable", claim)


@pytest.mark.parametrize(
    ("line", "direction"),
    [
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update", "raise"),
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "raise"),
        ("RuntimeError: Error 804: forward compatibility was attempted on non supported HW", "raise"),
        ("pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.", "set"),
        ("Failed to initialize NVML: Driver/library version mismatch", "set"),
    ],
)
def test_a_driver_that_does_not_fit(line: str, direction: str) -> None:
    (finding,) = of(VLLM + line + "\n").findings
    assert finding.code == "driver-mismatch"
    assert moves(finding) == {"the GPU's driver": (direction, None)}


def test_a_port_of_sglang_that_is_taken_before_the_exception_says_which() -> None:
    line = "[2026-05-30 14:00:01] Port is already in use. dist_init_port=30233 port_base=30234 nccl_port=30236\n"
    (finding,) = of(SGLANG + line).findings
    assert (finding.code, moves(finding)) == ("address-in-use", {"--dist-init-addr": ("set", None)})
    named = "ValueError: nccl_port at 30236 is not available in 30 seconds. lsof says nothing\n"
    (finding,) = of(SGLANG + line + named).findings
    assert moves(finding) == {"--nccl-port": ("set", "another port than 30236")}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),  # gone in 0.5.20
        ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"),  # new in 0.5.14
        ("--mem-fraction-statics", "--mem-fraction-static"),
    ],
)
def test_a_flag_that_another_version_has(given: str, meant: str) -> None:
    (finding,) = of(SGLANG + f"launch_server.py: error: unrecognized arguments: {given} 16\n").findings
    assert moves(finding) == {meant: ("set", None)}


REFUSED = """\
{prefix}pydantic_core._pydantic_core.ValidationError: 1 validation error for {of}
{prefix}{detail}
{prefix}    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
BATCH = (  # vLLM 0.32.0
    "  Value error, max_num_batched_tokens (10) is smaller than max_model_len (4096). This effectively limits the "
    "maximum sequence length. [type=value_error, input_value=ArgsKwargs((), {'max_mode...': False}), input_type=Args]"
)
RANGE = "  Input should be less than or equal to 1 [type=less_than_equal, input_value=1.5, input_type=float]"


@pytest.mark.parametrize("prefix", ["", "(APIServer pid=7) ", "ERROR 07-02 10:10:00 [core.py:588] "])
@pytest.mark.parametrize(
    ("of_what", "detail", "claim", "flags"),
    [
        ("SchedulerConfig", BATCH, "max_num_batched_tokens (10) is smaller",
         ["--max-model-len", "--max-num-batched-tokens"]),
        ("CacheConfig", RANGE, "Input should be less than or equal to 1, not 1.5", ["the flag of that setting"]),
    ],
)  # fmt: skip
def test_settings_that_the_engine_refuses(prefix: str, of_what: str, detail: str, claim: str, flags: list[str]) -> None:
    (finding,) = of(VLLM + REFUSED.format(prefix=prefix, of=of_what, detail=detail)).findings
    assert (finding.code, finding.severity, finding.confidence) == ("bad-arguments", "fatal", "certain")
    assert f"({of_what}): {claim}" in finding.claim
    assert sorted(moves(finding)) == flags
    assert len(finding.evidence) == 2


@pytest.mark.parametrize(
    ("detail", "code"),
    [
        ("  Value error, Invalid repository ID or local directory specified: '/models/no'.", "no-such-model"),
        ("  Value error, Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
         "dtype-unsupported"),
        ("  Value error, Model architectures ['Perpetuum'] are not supported for now. [type=value_error", "unknown"),
    ],
)  # fmt: skip
def test_a_refusal_that_a_rule_knows_better_is_no_bad_argument(detail: str, code: str) -> None:
    assert codes(of(VLLM + REFUSED.format(prefix="", of="ModelConfig", detail=detail))) == [code]


def test_a_request_that_is_refused_is_no_bad_argument() -> None:
    lines = REFUSED.format(prefix="", of="ChatCompletionRequest", detail="  Value error, no stream options")
    assert "bad-arguments" not in codes(of(VLLM + lines))
