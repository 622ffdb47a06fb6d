"""Flags by version, as they were read in the wheels."""

import pytest

from draftmark.configuration import Configuration, EngineName, Parallel, Speculative
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.engines.offered import beside, choices, ever, options, read_versions
from draftmark.engines.versions import ahead, parse_version
from draftmark.units import Tokens

ENGINES: tuple[EngineName, ...] = ("sglang", "vllm")
MODULES = {"sglang": sglang_flags, "vllm": vllm_flags}
VERSIONS = [(engine, version) for engine in ENGINES for version in read_versions(engine)]
FULL = Configuration(
    engine="sglang",
    model="m",
    parallel=Parallel(tensor=8, pipeline=2, data=2, expert=8),
    memory_fraction=0.9,
    chunk=Tokens(4096),
    context=Tokens(8192),
    max_running=8,
    page=Tokens(64),
    dtype="bfloat16",
    kv_dtype="fp8_e4m3",
    quantization="fp8",
    graphs=False,
    graph_batch=8,
    speculative=Speculative(algorithm="EAGLE3", draft_model="d", steps=3, top_k=1, draft_tokens=4),
)


@pytest.mark.parametrize(
    ("engine", "flag", "before", "first"),
    [
        ("vllm", "--decode-context-parallel-size", "0.10.1.1", "0.10.2"),
        ("vllm", "-dcp", "0.10.1.1", "0.10.2"),
        ("vllm", "--data-parallel-size", "0.8.0", "0.8.3"),
        ("sglang", "--dcp-size", "0.5.14", "0.5.15.post1"),
        ("sglang", "--attn-dp-size", "0.5.21", "0.5.22"),
        ("sglang", "--speculative-draft-window-size", "0.5.11", "0.5.12.post1"),
    ],
)
def test_flags_come_with_a_version(engine: EngineName, flag: str, before: str, first: str) -> None:
    assert flag not in options(engine, before)
    assert flag in options(engine, first)


def test_flags_go_with_a_version() -> None:
    assert "--cuda-graph-max-bs" in options("sglang", "0.5.19")
    assert "--cuda-graph-max-bs" not in options("sglang", "0.5.20")
    assert "256" in choices("vllm", "--block-size", "0.17.0")
    assert choices("vllm", "--block-size", "0.18.0") == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_that_is_understood_was_read_in_some_version(engine: EngineName) -> None:
    module = MODULES[engine]
    named = {flag.names[0] for flag in module.TABLE} | set(module.KEPT) | set(module.HARMLESS)
    assert named - set(ever(engine)) == set()


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_what_is_written_is_a_flag_of_the_version(engine: EngineName, version: str) -> None:
    """But for what a version lacks altogether, and the planner then refuses or does not propose."""
    full = Configuration(
        **{name: getattr(FULL, name) for name in FULL.__struct_fields__} | {"engine": engine, "version": version}
    )
    words = MODULES[engine].write_flags(full)
    offered = options(engine, version)
    lacking = {word for word in words if word.startswith("-") and word not in offered}
    allowed = {
        "sglang": {"--pp-size", "--speculative-draft-model-path"},
        "vllm": {"--data-parallel-size", "--enable-expert-parallel", "--speculative-config"},
    }
    assert lacking <= (allowed[engine] if parse_version(version) < (0, 8, 3) else set())


def test_a_version_between_two_that_were_read_has_what_either_has() -> None:
    assert beside("vllm", "0.20.1") == ("0.20.0", "0.22.0")
    assert beside("vllm", "0.20.0") == ("0.20.0",)
    assert beside("vllm", "0.99") == ("0.33.0",)
    assert beside("sglang", "0.0.0.dev7") == beside("sglang", None) == ("0.5.23",)


@pytest.mark.parametrize(
    ("version", "newest", "steps"),
    [
        ("0.33.0", "0.33.0", 0),
        ("0.33", "0.33.0", 0),
        ("0.20.1", "0.33.0", 0),
        ("0.33.1", "0.33.0", 1),
        ("0.36.2", "0.33.0", 3),
        ("0.5.23.post1", "0.5.23", 1),
        ("0.6.0", "0.5.23", 1),
        ("0.0.0", "0.5.23", 1),
    ],
)
def test_how_far_ahead_a_version_is(version: str, newest: str, steps: int) -> None:
    assert ahead(parse_version(version), parse_version(newest)) == steps
