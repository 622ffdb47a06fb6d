"""Blocks of a log that are passed over, and what none of them may hold."""

import pytest

from draftmark.diagnose import signs
from draftmark.diagnose.calm import LONGEST_TEXT, Calm
from tests.diagnose.logs import SERVING, of

STEP = (
    "[2026-05-30 14:09:02 TP3] Decode batch, #running-req: {0}, #token: {0}, full token usage: 0.{0}, #queue-req: 0\n"
)
STEPS = "".join(STEP.format(number) for number in range(100))


@pytest.mark.parametrize("text", [*signs.TEXTS, "Traceback (most", "server_args=", "ValueError"])
def test_every_text_that_a_sign_needs_wakes(text: str) -> None:
    calm = Calm()
    assert calm(STEPS.encode())
    assert calm(STEPS.encode()), "the same shapes again"
    assert not calm((STEPS + f"before {text} after\n" + STEPS).encode())
    assert not calm(f"before {text} after\n".encode()), "and again, though it was looked at"
    assert len(text.encode()) <= LONGEST_TEXT


def test_numbers_that_matter_are_not_taken_for_others() -> None:
    calm = Calm()
    assert calm(b"full token usage: 0.53, #swa token: 5\n")
    assert not calm(b"full token usage: 1.00, #swa token: 5\n")


def test_what_comes_after_many_calm_blocks_is_read() -> None:
    end = "[2026-05-30 14:09:03 TP3] KV cache pool is full. Retract requests. #retracted_reqs: 3\n"
    text = SERVING + STEPS * 200 + end
    (finding,) = of(text).findings
    assert finding.code == "pool-exhausted"
    assert finding.evidence[0].source.line == text.count("\n")
