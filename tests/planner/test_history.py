from pathlib import Path

from draftmark.configuration import Configuration
from draftmark.ledger import Entry, Pool, close
from draftmark.planner.history import past_starts
from draftmark.store import Store
from draftmark.trial import Environment
from draftmark.units import Bytes, Tokens
from tests.zoo import zoo_model

NAME = "Qwen/Qwen3-8B"


def test_starts_with_both_ledgers_are_read_back(tmp_path: Path) -> None:
    environment = Environment(draftmark="0", engine="sglang", engine_version="0.5.20", device="NVIDIA H200")
    predicted = close(rank=0, capacity=Bytes(100), entries=(Entry(account="pool", bytes=Bytes(60), why=""),))
    observed = close(rank=0, capacity=Bytes(100), entries=(Entry(account="pool", bytes=Bytes(55), why=""),))
    pool = Pool(tokens=Tokens(5))
    with Store(tmp_path / "runs.db") as store:
        run = store.begin_run("serve", (), environment)
        for number in range(2):
            configuration = Configuration(engine="sglang", model=NAME)
            trial = store.begin_trial(run, configuration, environment)
            store.set_prediction(trial, [predicted], pool)
            if number == 0:
                store.set_observed(trial, [observed], pool)
        (unnamed,) = past_starts(store)
        store.describe_run(run, model=zoo_model(NAME))
        (named,) = past_starts(store)
    assert (unnamed.model, unnamed.architecture) == (NAME, "")
    assert (named.model, named.architecture) == (NAME, "Qwen3ForCausalLM")
    assert (named.version, named.device, named.missed) == ("0.5.20", "NVIDIA H200", -5)
