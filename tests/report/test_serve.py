"""What the terminal is shown of a start."""

import io

import pytest
from rich.console import Console

from draftmark.configuration import Configuration
from draftmark.ledger import Entry, Ledger, Pool
from draftmark.report.serve import trial
from draftmark.serve import StartFailed
from draftmark.trial import Crashed, Environment, Outcome, Ready, Trial
from draftmark.units import Bytes, Seconds, Tokens

CRASHED = Crashed(phase="init", exit_code=1, signal=None, message="ImportError: no")
READY = Ready(after=Seconds(1.0))


LEDGER = Ledger(rank=0, capacity=Bytes(10**8), entries=(Entry(account="weights", bytes=Bytes(10**8), why="told"),))


def kept(outcome: Outcome, observed: tuple[Ledger, ...], pool: Pool | None = None) -> Trial:
    return Trial(
        configuration=Configuration(engine="vllm", model="m"),
        environment=Environment(draftmark="0"),
        outcome=outcome,
        log="server.log",
        predicted=(LEDGER,),
        observed=observed,
        predicted_pool=Pool(tokens=Tokens(1000)),
        pool=pool,
    )


def shown(made: Trial) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(trial(made))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("outcome", [CRASHED, READY])
def test_no_ledger_where_nothing_was_observed(outcome: Outcome) -> None:
    text = shown(kept(outcome, ()))
    assert "memory of the worst rank" not in text
    assert ("pool: predicted 1,000 tokens" in text) is isinstance(outcome, Ready)


@pytest.mark.parametrize("outcome", [CRASHED, READY])
def test_what_was_observed_stands_beside_what_was_predicted(outcome: Outcome) -> None:
    text = shown(kept(outcome, (LEDGER,), Pool(tokens=Tokens(1000))))
    assert "memory of the worst rank" in text
    assert "observed 1,000 tokens" in text


@pytest.mark.parametrize("outcome", [CRASHED, Crashed(phase="init", exit_code=1, signal=None, message="")])
def test_no_pointer_to_findings_that_are_shown(outcome: Crashed) -> None:
    alone = StartFailed(kept(outcome, ()))
    beside = StartFailed(kept(outcome, ()), shown=True)
    assert "draftmark diagnose" not in str(beside)
    assert beside.cause == alone.cause
    assert ("draftmark diagnose" in str(alone)) is bool(outcome.message)
    assert ("--launcher" in str(beside)) is not bool(outcome.message)
