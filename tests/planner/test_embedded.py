import msgspec
import pytest

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Device, Machine
from draftmark.model import Gqa, Layer, Model, WeightGroup
from draftmark.planner import plan
from draftmark.units import GIB, MIB, Bytes, Tokens
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
    with pytest.raises(BadInput, match="not a number of bytes"):
        plan(tiny(), msgspec.structs.replace(WANTED, flags=("--memory", "much")), HOST)
