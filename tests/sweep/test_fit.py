import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.observation import ServerState
from draftmark.sweep.fit import largest, predicted_prefill, refusal
from draftmark.units import Tokens


def state(
    *,
    context: int | None = None,
    pool_tokens: int | None = None,
    max_running: int | None = None,
    page: int | None = None,
    draft_tokens: int | None = None,
) -> ServerState:
    return ServerState(
        url="http://h",
        engine=None,
        version=None,
        models=("m",),
        context=None if context is None else Tokens(context),
        pool_tokens=None if pool_tokens is None else Tokens(pool_tokens),
        max_running=max_running,
        page=None if page is None else Tokens(page),
        draft_tokens=draft_tokens,
    )


def test_nothing_known_refuses_nothing() -> None:
    assert refusal(state(), 10**9, output=32, concurrency=64) is None
    assert largest(state(), output=32, concurrency=1) is None


@pytest.mark.parametrize(
    ("known", "asked", "concurrency", "words"),
    [
        ({"context": 1000}, 969, 1, "context length of 1,000"),
        ({"pool_tokens": 1000}, 969, 1, "pool of 1,000"),
        ({"pool_tokens": 1000, "draft_tokens": 8}, 961, 1, "1,001 tokens (prompt, output, draft and page rounding)"),
        ({"pool_tokens": 1000, "page": 64}, 929, 1, "1,024 tokens"),
        ({"pool_tokens": 1000}, 300, 4, "4 x 332"),
        ({"max_running": 2}, 100, 4, "limit of 2"),
    ],
)
def test_what_cannot_fit_is_refused_with_its_reason(
    known: dict[str, int], asked: int, concurrency: int, words: str
) -> None:
    refused = refusal(state(**known), asked, output=32, concurrency=concurrency)
    assert refused is not None
    assert words in refused.reason


@given(
    pool=st.integers(100, 10**6),
    context=st.integers(100, 10**6),
    page=st.sampled_from([1, 16, 64]),
    draft=st.integers(0, 16),
    output=st.integers(1, 64),
    concurrency=st.integers(1, 8),
)
def test_the_largest_fits_and_one_more_does_not(
    pool: int, context: int, page: int, draft: int, output: int, concurrency: int
) -> None:
    server = state(pool_tokens=pool, context=context, page=page, draft_tokens=draft)
    most = largest(server, output=output, concurrency=concurrency)
    if most is None:
        assert refusal(server, 1, output=output, concurrency=concurrency) is not None
        return
    assert refusal(server, most, output=output, concurrency=concurrency) is None
    assert refusal(server, most + 1, output=output, concurrency=concurrency) is not None


def test_prefills_are_predicted_from_shorter_ones() -> None:
    assert predicted_prefill((), 1000) is None
    assert predicted_prefill(((1000, 2.0),), 2000) == pytest.approx(4.0)
    assert predicted_prefill(((1000, 1.0), (2000, 4.0)), 4000) == pytest.approx(16.0)
    assert predicted_prefill(((1000, 1.0), (2000, 40.0)), 4000) == pytest.approx(160.0), "no steeper than a square"
    assert predicted_prefill(((1000, 2.0), (2000, 2.0)), 4000) == pytest.approx(4.0), "no flatter than a line"
