"""Values that no engine can be asked for, whatever the model; and GPUs that lack what is asked of them."""

from typing import Any

import msgspec
import pytest

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Plan, Target, plan, solve
from draftmark.planner.asked import check
from draftmark.planner.capable import needs
from draftmark.units import Tokens
from tests.zoo import zoo_model

QWEN = "Qwen/Qwen3-0.6B"
BOTH: tuple[EngineName, ...] = ("sglang", "vllm")


def asked(engine: EngineName = "sglang", **fields: Any) -> Configuration:
    return Configuration(engine=engine, model=QWEN, **fields)


def planned(gpu: str = "h200", name: str = QWEN, target: Target | None = None, **fields: Any) -> Plan:
    return plan(zoo_model(name), asked(**fields), parse_machine(gpu), target=target)


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("field", ["pool_tokens", "chunk", "context", "max_running", "page", "graph_batch"])
@pytest.mark.parametrize("value", [0, -7, 10**30])
def test_numbers_that_cannot_be(engine: EngineName, field: str, value: int) -> None:
    with pytest.raises(BadInput, match=r"is less than 1|beyond anything"):
        check(asked(engine, **{field: value}))


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", ["tensor", "pipeline", "data", "expert", "decode_context"])
@pytest.mark.parametrize("value", [0, -1, 10**30])
def test_ranks_that_cannot_be(engine: EngineName, name: str, value: int) -> None:
    with pytest.raises(BadInput, match="ranks cannot be"):
        check(asked(engine, parallel=msgspec.structs.replace(Parallel(), **{name: value})))


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_fractions_that_cannot_be(engine: EngineName, value: float) -> None:
    with pytest.raises(BadInput, match="is not above 0 and at most 1"):
        check(asked(engine, memory_fraction=value))


@pytest.mark.parametrize(
    ("engine", "version", "field", "value", "message"),
    [
        ("sglang", None, "quantization", "int3", "unknown quantization 'int3'; known to sglang 0.5.23"),
        ("vllm", "0.9.2", "quantization", "mxfp4", "unknown quantization 'mxfp4'; known to vllm 0.9.2"),
        ("sglang", "0.5.3", "kv_dtype", "nvfp4", "unknown dtype 'nvfp4'; known to sglang 0.5.3"),
        ("sglang", None, "kv_dtype", "fp8", "unknown dtype 'fp8'; known to sglang 0.5.23"),
        ("vllm", None, "kv_dtype", "turboquant_k8v4", "it is not known how many bytes a token takes"),
        ("vllm", None, "dtype", "int8", "unknown dtype 'int8'"),
        ("vllm", None, "page", 17, "blocks of 17 tokens fit no backend; give a multiple of 16"),
        ("vllm", "0.10.2", "page", 48, "has no blocks of 48 tokens; known: 1, 8, 16, 32, 64, 128"),
        ("vllm", None, "pool_tokens", 9000, "vLLM does not take its pool in tokens"),
    ],
)
def test_values_that_a_version_does_not_have(
    engine: EngineName, version: str | None, field: str, value: object, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        check(asked(engine, version=version, **{field: value}))
    assert message in str(caught.value)


def test_a_chunk_is_of_whole_pages() -> None:
    with pytest.raises(BadInput, match="a chunk of 4096 tokens is not of whole pages of 48"):
        check(asked(page=Tokens(48), chunk=Tokens(4096)))


@pytest.mark.parametrize(
    ("engine", "version", "parallel", "flag"),
    [
        ("vllm", "0.9.2", Parallel(tensor=8, decode_context=8), "--decode-context-parallel-size"),
        ("vllm", "0.8.0", Parallel(tensor=8, decode_context=8), "--decode-context-parallel-size"),
        ("vllm", "0.8.0", Parallel(data=2), "--data-parallel-size"),
        ("sglang", "0.5.14", Parallel(tensor=8, decode_context=8), "--dcp-size"),
        ("sglang", "0.4.6", Parallel(pipeline=2), "--pp-size"),
    ],
)
def test_layouts_came_with_a_version(engine: EngineName, version: str, parallel: Parallel, flag: str) -> None:
    with pytest.raises(BadInput, match=f"{engine} {version} has no {flag}; leave it out, or plan for "):
        check(asked(engine, version=version, parallel=parallel))
    check(asked(engine, parallel=parallel))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"context": 0, "output": 0}, "--context: 0 is less than 1"),
        ({"context": 1, "output": -1}, "--output: -1 is less than 0"),
        ({"context": 1, "output": 0, "concurrency": 0}, "--concurrency: 0 is less than 1"),
        ({"context": 1, "output": 0, "concurrency": 10**11}, "--concurrency: 100000000000 requests at once are beyond"),
        ({"context": 1, "output": 0, "concurrency": 9}, "--concurrency: a target of 9 requests at once contradicts"),
    ],
)
@pytest.mark.parametrize("engine", BOTH)
def test_targets_that_cannot_be(engine: EngineName, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        planned(engine=engine, max_running=8, target=Target(**fields))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "version", "gpu", "fields"),
    [
        ("sglang", "0.5.23", "a100", {"quantization": "w8a8_fp8"}),
        ("sglang", "0.5.23", "h200", {"quantization": "mxfp8"}),
        ("sglang", "0.5.23", "rtx-3090", {"quantization": "w4afp8"}),
        ("vllm", "0.8.5", "h200", {"quantization": "nvfp4"}),
    ],
)
def test_a_gpu_that_lacks_a_method_is_refused(
    engine: EngineName, version: str, gpu: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match=r"runs \w+ from sm_\d+ on, and"):
        planned(gpu, engine=engine, version=version, **fields)


@pytest.mark.parametrize(("version", "works"), [("0.5.12.post1", False), ("0.5.15.post1", True), ("0.5.23", True)])
def test_a_stored_nvfp4_checkpoint_on_hopper(version: str, works: bool) -> None:
    name = "nvidia/Qwen3.6-27B-NVFP4"
    if works:
        assert any("by Marlin" in note for note in planned("h200", name, version=version).notes)
    else:
        with pytest.raises(BadInput, match="runs modelopt"):
            planned("h200", name, version=version)


@pytest.mark.parametrize("engine", BOTH)
def test_fp8_weights_run_on_ampere_by_marlin_and_it_is_said(engine: EngineName) -> None:
    assert any("by Marlin" in note for note in planned("a100", engine=engine, quantization="fp8").notes)
    assert not any("by Marlin" in note for note in planned("h200", engine=engine, quantization="fp8").notes)


@pytest.mark.parametrize(
    ("engine", "name", "quantization", "contradicts"),
    [
        ("sglang", "deepseek-ai/DeepSeek-V3", "awq", True),
        ("sglang", "deepseek-ai/DeepSeek-V3", "modelopt_fp4", True),
        ("vllm", "deepseek-ai/DeepSeek-V3", "gptq_marlin", True),
        ("vllm", "deepseek-ai/DeepSeek-V3", "fp8", False),
        ("sglang", "openai/gpt-oss-20b", "mxfp4", False),
        ("sglang", "openai/gpt-oss-20b", "fp8", True),
        ("sglang", QWEN, "fp8", False),
    ],
)
def test_a_method_that_contradicts_the_checkpoint_is_refused(
    engine: EngineName, name: str, quantization: str, contradicts: bool
) -> None:
    fields: dict[str, Any] = {"engine": engine, "quantization": quantization, "parallel": Parallel(tensor=8)}
    if not contradicts:
        assert planned("h200:8", name, **fields).pool.tokens > 0
        return
    with pytest.raises(BadInput, match=f"{quantization} is not how the checkpoint is stored"):
        planned("h200:8", name, **fields)


@pytest.mark.parametrize(
    "flag", ["--swa-full-tokens-ratio", "--mamba-full-memory-ratio", "--max-prefill-tokens", "--nnodes"]
)
@pytest.mark.parametrize("text", ["abc", "-1", "nan", "inf"])
def test_numbers_of_sglang_that_are_none_are_refused_whether_they_count_or_not(flag: str, text: str) -> None:
    with pytest.raises(BadInput, match=flag):
        planned(flags=(flag, text))


@pytest.mark.parametrize(
    "fields",
    [
        {"pool_tokens": Tokens(1)},
        {"name": "Qwen/Qwen3.5-27B", "flags": ("--max-mamba-cache-size", "1")},
    ],
)
def test_a_pool_without_room_for_a_request_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="has room for no running request"):
        planned(**fields)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("nvidia/Qwen3.5-122B-A10B-NVFP4", "rtx-pro-6000"), ("Qwen/Qwen3.5-27B", "h100"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "a100"),
    ],
)  # fmt: skip
def test_a_fraction_that_leaves_no_room_for_a_request_is_planned_and_said_not_to_start(name: str, gpu: str) -> None:
    """Whatever the fraction: nobody limited the pool, so that no flag is blamed, and another fraction mends it."""
    found = [planned(name=name, gpu=gpu, memory_fraction=0.5 + step / 500) for step in range(250)]
    idle = [one for one in found if one.pool.tokens > 0 and not one.configuration.max_running]
    assert idle, "no fraction came near"
    for one in idle:
        assert not one.fits
        assert "raise the fraction" in one.conflicts[-1]


def test_a_pool_without_room_for_a_request_is_solved_for() -> None:
    name = "nvidia/Qwen3.5-122B-A10B-NVFP4"
    target = Target(context=Tokens(50_000), output=Tokens(0))
    found = solve(zoo_model(name), Configuration(engine="sglang", model=name), parse_machine("rtx-pro-6000"), target)
    assert not found.asked.fits
    assert found.first is not None
    assert found.first.plan.configuration.max_running


@pytest.mark.parametrize(
    ("backend", "page", "taken"),
    [
        ("flashmla", 16, 64), ("flashmla", 64, 64), ("cutlass_mla", 1, 128), ("trtllm_mla", 32, 32),
        ("trtllm_mha", 4, 64), ("trtllm_mha", 16, 16), ("fa3", 16, 16),
    ],
)  # fmt: skip
def test_a_page_that_the_backend_does_not_have_is_changed_and_it_is_said(backend: str, page: int, taken: int) -> None:
    found = planned(page=Tokens(page), flags=("--attention-backend", backend))
    assert found.configuration.page == taken
    assert any(reason.field == "page" for reason in found.reasons) is (page != taken)


def test_every_need_says_where_it_was_read() -> None:
    assert all(need.source.startswith(need.engine) and need.names for need in needs())


@pytest.mark.parametrize(("engine", "newest", "later"), [("sglang", "0.5.23", "0.5.30"), ("vllm", "0.33.0", "0.40.0")])
def test_a_version_that_was_not_read_is_said_and_less_sure(engine: EngineName, newest: str, later: str) -> None:
    known, unread = planned(engine=engine, version=newest), planned(engine=engine, version=later)
    assert not any("was not read" in note for note in known.notes)
    assert any(f"{later} was not read: this is the arithmetic of {newest}" in note for note in unread.notes)
    assert known.pool.tokens == unread.pool.tokens
    assert None not in (known.pool.low, unread.pool.low)
    assert (unread.pool.low or 0) < (known.pool.low or 0)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("sglang", "0.4.5"), ("sglang", "0.5"), ("vllm", "0.7.3"), ("vllm", "new"), ("sglang", "")],
)
def test_versions_that_cannot_be_planned(engine: EngineName, version: str) -> None:
    if not version:
        assert planned(engine=engine, version=None).configuration.version == "0.5.23"
        return
    with pytest.raises(BadInput, match="--engine-version"):
        planned(engine=engine, version=version)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "shows 1 of the 2 GPUs"),
        ("", "shows 0 of the 2 GPUs"),
        ("-1", "shows 0 of the 2 GPUs"),
        ("0,0", "names a GPU twice"),
        ("0,4", "there is no GPU 4 among 2"),
        ("0,x", "'x' is no GPU"),
        ("0,-1", "'-1' is no GPU"),
        ("MIG-1,MIG-2", "slices of a GPU"),
    ],
)
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"])
@pytest.mark.parametrize("engine", BOTH)
def test_visible_gpus_that_do_not_do(engine: EngineName, name: str, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        planned("h200:2", engine=engine, parallel=Parallel(tensor=2), environment=((name, text),))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["0,1", "1, 0", "GPU-8a,GPU-9b"])
def test_visible_gpus_that_do(text: str) -> None:
    environment = (("CUDA_VISIBLE_DEVICES", text), ("NVIDIA_VISIBLE_DEVICES", "all"))
    assert planned("h200:2", parallel=Parallel(tensor=2), environment=environment).gpus == 2


def test_visible_gpus_of_one_host_of_two() -> None:
    fields: dict[str, Any] = {
        "parallel": Parallel(tensor=2, pipeline=2),
        "environment": (("CUDA_VISIBLE_DEVICES", "0,1"),),
    }
    assert planned("h200:4", flags=("--nnodes", "2"), **fields).gpus == 4
    with pytest.raises(BadInput, match="shows 2 of the 4"):
        planned("h200:4", **fields)


def test_a_pool_larger_than_what_fits_is_said() -> None:
    found = planned(pool_tokens=Tokens(99_000_000))
    assert any("is more than the" in note for note in found.notes)
    assert found.pool.tokens == planned().pool.tokens
    assert not any("is more than" in note for note in planned(pool_tokens=Tokens(1000)).notes)


def test_blocks_beyond_what_fits_cannot_start() -> None:
    found = planned(engine="vllm", flags=("--num-gpu-blocks-override", "999999"))
    assert any("takes the place of" in note for note in found.notes)
    assert not found.fits
    assert planned(engine="vllm", flags=("--num-gpu-blocks-override", "9999")).fits


@pytest.mark.parametrize("flag", ["--num-gpu-blocks-override", "--kv-cache-memory-bytes"])
@pytest.mark.parametrize("text", ["lots", "0", "-4", "1.5.2"])
def test_pools_of_vllm_that_are_no_number(flag: str, text: str) -> None:
    with pytest.raises(BadInput, match=flag):
        planned(engine="vllm", flags=(flag, text))


def test_vllm_reads_binary_sizes() -> None:
    found = planned(engine="vllm", flags=("--kv-cache-memory-bytes", "20G"))
    assert found.pool.bytes == pytest.approx(20 * 2**30, rel=0.001)
    assert planned(engine="vllm", context=Tokens(-1)).configuration.context == 40_960
