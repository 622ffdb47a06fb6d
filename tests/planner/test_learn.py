from draftmark.configuration import Configuration, Parallel
from draftmark.ledger import Entry, Ledger, close
from draftmark.machine.catalogue import parse_machine
from draftmark.planner import Past, plan
from draftmark.planner.learn import learn
from draftmark.units import GIB, Bytes
from tests.zoo import zoo_model

H200 = parse_machine("h200")
ONE = Parallel()
LLAMA = "meta-llama/Meta-Llama-3.1-8B"


def ledger(pool: float, graphs: float = 1.0) -> Ledger:
    entries = (
        Entry(account="pool", bytes=Bytes(round(pool * GIB)), why=""),
        Entry(account="graphs", bytes=Bytes(round(graphs * GIB)), why=""),
    )
    return close(rank=0, capacity=H200.device.memory, entries=entries)


def past(
    missed: float, *, model: str = LLAMA, version: str = "0.5.20", device: str = "NVIDIA H200", parallel: Parallel = ONE
) -> Past:
    return Past(
        engine="sglang",
        version=version,
        device=device,
        architecture=zoo_model(model).architecture,
        model=model,
        parallel=parallel,
        predicted=ledger(100.0),
        observed=ledger(100.0 + missed, graphs=2.0),
    )


def asked(version: str = "0.5.20") -> Configuration:
    return Configuration(engine="sglang", model=LLAMA, version=version)


def test_a_start_of_the_same_model_moves_the_budget_and_narrows_the_interval() -> None:
    model = zoo_model(LLAMA)
    before, after = plan(model, asked(), H200), plan(model, asked(), H200, history=[past(-2.0)])
    assert before.pool.bytes is not None
    assert after.pool.bytes is not None
    assert -2.0 < (after.pool.bytes - before.pool.bytes) / GIB < -1.9
    assert before.pool.low is not None
    assert before.pool.high is not None
    assert after.pool.low is not None
    assert after.pool.high is not None
    assert after.pool.high - after.pool.low < 0.2 * (before.pool.high - before.pool.low)
    assert any("one past start" in note for note in after.notes)
    assert after.ledgers[0].amount("unexplained") is not None
    graphs = after.ledgers[0].amount("graphs"), before.ledgers[0].amount("graphs")
    assert graphs[0] is not None
    assert graphs[1] is not None
    assert graphs[0] > 1.8 * graphs[1]


def test_the_nearer_start_counts_more() -> None:
    model = zoo_model(LLAMA)
    same = learn([past(1.0)], asked(), "NVIDIA H200", model)
    cousin = learn([past(1.0, model="meta-llama/Meta-Llama-3.1-70B")], asked(), "NVIDIA H200", model)
    stranger = learn([past(1.0, model="Qwen/Qwen3-8B")], asked(), "NVIDIA H200", model)
    older = learn([past(1.0, version="0.5.15")], asked(), "NVIDIA H200", model)
    elsewhere = learn([past(1.0, parallel=Parallel(tensor=2))], asked(), "NVIDIA H200", model)
    assert same.budget > elsewhere.budget > 0
    assert same.budget > older.budget > cousin.budget > stranger.budget > 0
    assert same.deviation < older.deviation < cousin.deviation < stranger.deviation < 1


def test_other_gpus_and_engines_say_nothing() -> None:
    model = zoo_model(LLAMA)
    assert learn([past(1.0, device="NVIDIA H100 80GB HBM3")], asked(), "NVIDIA H200", model).starts == 0
    other = Configuration(engine="vllm", model=LLAMA, version="0.19.0")
    assert learn([past(1.0)], other, "NVIDIA H200", model).starts == 0


def test_starts_that_agree_are_surer_than_one() -> None:
    model = zoo_model(LLAMA)
    one, three = (learn([past(-0.5)] * count, asked(), "NVIDIA H200", model) for count in (1, 3))
    assert three.deviation < one.deviation
    assert three.budget < one.budget < 0
