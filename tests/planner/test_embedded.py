import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from draftmark.checkpoint.load import load_model
from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.model import Gqa, Layer, Mla, Model, WeightGroup
from draftmark.planner import plan
from draftmark.planner.embedded_prefill import activations
from draftmark.units import GIB, MIB, Bytes, Tokens
from tests.embedded.process import server
from tests.zoo import zoo_model

HOST = Machine(
    device=Device(name="cpu", kind="cpu", memory=Bytes(16 * GIB), bandwidth=None, matrix_rate=None, source="test"),
    count=1,
)
WANTED = Configuration(engine="embedded", model="tiny", device="cpu", flags=("--memory", "512Mi"))


def tiny(parameters: int = 4_000_000) -> Model:
    mixer = Gqa(heads=8, kv_heads=4, head_dim=64, value_head_dim=64)
    return Model(
        name="tiny",
        architecture="LlamaForCausalLM",
        source="test",
        layers=tuple(Layer(mixer=mixer) for _ in range(4)),
        hidden_size=256,
        intermediate_size=512,
        vocabulary=2048,
        context=Tokens(16_384),
        dtype="float32",
        tied_embeddings=False,
        weights=(WeightGroup(role="mlp", layer=0, bytes=Bytes(4 * parameters), parameters=parameters, dtype="F32"),),
        exact_weights=True,
    )


def test_the_documented_formula() -> None:
    found = plan(tiny(), WANTED, HOST, free=Bytes(8 * GIB))
    per_token = 4 * 4 * (64 + 64) * 4
    assert found.bytes_per_token == per_token
    assert found.pool.tokens == (256 * MIB - 16_000_000) // per_token
    assert found.pool.low == found.pool.high == found.pool.tokens
    assert found.ledgers[0].capacity == 512 * MIB
    assert found.longest_request == 16_384


def test_the_pool_is_no_larger_than_all_requests() -> None:
    wide = msgspec.structs.replace(WANTED, flags=(), max_running=2)
    found = plan(tiny(), wide, HOST, free=Bytes(8 * GIB))
    assert found.pool.tokens == 2 * 16_384


def test_free_memory_of_a_host_makes_an_interval() -> None:
    found = plan(tiny(), msgspec.structs.replace(WANTED, flags=()), HOST, free=Bytes(1 * GIB))
    assert found.pool.low is not None
    assert found.pool.high is not None
    assert found.pool.low < found.pool.tokens < found.pool.high


def test_an_explicit_pool_is_taken_as_it_is() -> None:
    found = plan(tiny(), msgspec.structs.replace(WANTED, pool_tokens=Tokens(5000)), HOST)
    assert found.pool.tokens == 5000
    assert found.configuration.memory_fraction is None


def test_weights_that_fill_the_budget_leave_no_pool_and_say_so() -> None:
    found = plan(tiny(parameters=80_000_000), WANTED, HOST)
    assert not found.fits
    assert [(risk.phase, risk.probability) for risk in found.risks] == [("pool", 1.0)]
    assert "raise" in found.risks[0].why


def test_refusals() -> None:
    both = msgspec.structs.replace(WANTED, pool_tokens=Tokens(5), memory_fraction=0.5)
    with pytest.raises(BadInput, match="exclude each other"):
        plan(tiny(), both, HOST)
    with pytest.raises(BadInput, match="beyond the model's own 16384"):
        plan(tiny(), msgspec.structs.replace(WANTED, context=Tokens(20_000)), HOST)
    with pytest.raises(BadInput, match="cannot hold layer 0's cache"):
        plan(zoo_model("Qwen/Qwen3.5-27B"), WANTED, HOST)
    with pytest.raises(BadInput, match="cannot hold layer 3's cache"):
        plan(zoo_model("MiniMaxAI/MiniMax-M3"), WANTED, HOST)
    with pytest.raises(BadInput, match="not a number of bytes"):
        plan(tiny(), msgspec.structs.replace(WANTED, flags=("--memory", "much")), HOST)


def test_attention_over_the_whole_depth_is_in_the_activations() -> None:
    """The example of docs/embedded.md: at depth 5,120 the mask and the repeated keys and values."""
    tiny_model = tiny()
    shallow = activations(tiny_model, msgspec.structs.replace(WANTED, chunk=Tokens(512)), 512)
    deep = activations(tiny_model, msgspec.structs.replace(WANTED, chunk=Tokens(512)), 5120)
    mask, repeated = 512 * 5120 * (1 + 4), 8 * 5120 * (64 + 64) * 4
    assert (mask, repeated) == (13_107_200, 20_971_520)
    assert deep - shallow == mask + repeated - 8 * 512 * (64 + 64) * 4


def test_attention_without_shared_heads_repeats_nothing() -> None:
    mixer = Gqa(heads=8, kv_heads=8, head_dim=64, value_head_dim=64)
    plain = msgspec.structs.replace(tiny(), layers=(Layer(mixer=mixer),))
    wanted = msgspec.structs.replace(WANTED, chunk=Tokens(512))
    assert activations(tiny(), wanted, 5120) - activations(plain, wanted, 5120) == 8 * 5120 * (64 + 64) * 4


def test_latent_attention_decompresses_the_whole_depth() -> None:
    mixer = Mla(heads=4, latent_rank=512, rope_dim=64, nope_dim=128, value_dim=128, query_rank=None)
    latent = msgspec.structs.replace(tiny(), layers=(Layer(mixer=mixer),))
    wanted = msgspec.structs.replace(WANTED, chunk=Tokens(512))
    grown = activations(latent, wanted, 8192) - activations(latent, wanted, 4096)
    assert grown == 512 * 4096 * 5 + 4 * 4096 * (2 * 128 + 64 + 128) * 4


def test_the_risk_of_prefill_grows_with_the_depth_that_is_admitted() -> None:
    tight = msgspec.structs.replace(WANTED, flags=("--memory", "256Mi"), memory_fraction=0.72)
    risks = [
        plan(tiny(), msgspec.structs.replace(tight, context=Tokens(context)), HOST).worst_risk
        for context in (1000, 4000, 16_000)
    ]
    assert risks == sorted(risks)
    assert risks[0] < 0.3
    assert risks[-1] == 1.0


def test_a_pool_beyond_the_memory_cannot_start() -> None:
    found = plan(tiny(), msgspec.structs.replace(WANTED, pool_tokens=Tokens(10**15)), HOST)
    assert not found.fits
    assert [(risk.phase, risk.probability) for risk in found.risks] == [("pool", 1.0)]
    assert all(room.requests == 0 for room in found.room)


def test_a_pool_that_leaves_no_chunk_cannot_start() -> None:
    most = (512 * MIB - 16_000_000) // (4 * 4 * 128 * 4)
    found = plan(tiny(), msgspec.structs.replace(WANTED, pool_tokens=Tokens(most - 10)), HOST)
    assert [(risk.phase, risk.probability) for risk in found.risks] == [("pool", 1.0)]
    assert "one chunk" in found.risks[0].why


@pytest.mark.engine
@pytest.mark.parametrize(
    ("size", "prompt", "holds"),
    [(("--mem-fraction", "0.72"), 16_000, False), (("--pool-tokens", "5000"), 4_990, True)],
)
def test_real_prompts_agree_with_the_risk(tmp_path: Path, size: tuple[str, str], prompt: int, holds: bool) -> None:
    subprocess.run([sys.executable, "-m", "draftmark.embedded.tiny", str(tmp_path)], check=True)
    folder = str(tmp_path / "gqa")
    wanted = Configuration(
        engine="embedded",
        model=folder,
        device="cpu",
        memory_fraction=float(size[1]) if size[0] == "--mem-fraction" else None,
        pool_tokens=Tokens(int(size[1])) if size[0] == "--pool-tokens" else None,
        flags=("--memory", "256Mi"),
    )
    (risk,) = plan(load_model(folder), wanted, HOST).risks
    assert risk.phase == "prefill"
    assert (risk.probability < 0.01) if holds else (risk.probability == 1.0), risk
    with server(tmp_path / "log", "--model", folder, "--device", "cpu", "--memory", "256Mi", *size) as running:
        body = {"prompt": [11] * prompt, "max_tokens": 1}
        if holds:
            assert httpx.post(f"{running.url}/v1/completions", json=body, timeout=120).status_code == httpx.codes.OK
        else:
            with pytest.raises(httpx.HTTPError):
                httpx.post(f"{running.url}/v1/completions", json=body, timeout=120)
            assert running.process.wait(60) == 1
