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
    ranks: int = 1,
    reserved: int = 0,
    longest_prompt: int | None = None,
    longest_request: int | None = None,
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
        ranks=ranks,
        pool_reserved=Tokens(reserved),
        longest_prompt=None if longest_prompt is None else Tokens(longest_prompt),
        longest_request=None if longest_request is None else Tokens(longest_request),
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
        ({"max_running": 2, "ranks": 2}, 100, 5, "limit of 2 on each of 2 ranks"),
        ({"pool_tokens": 1000, "ranks": 2}, 500, 3, "2 x 532"),
        ({"pool_tokens": 1000, "ranks": 2}, 969, 1, "pool of 1,000 on each of 2 ranks"),
        ({"pool_tokens": 1024, "page": 64, "reserved": 64}, 929, 1, "1,024 tokens"),
        ({"context": 1000, "longest_request": 998}, 967, 1, "longest request of 998"),
        ({"context": 1000, "longest_prompt": 900}, 901, 1, "longest prompt of 900"),
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
    ranks=st.integers(1, 4),
    reserved=st.integers(0, 64),
    shorter=st.integers(0, 8),
)
def test_the_largest_fits_and_one_more_does_not(
    pool: int,
    context: int,
    page: int,
    draft: int,
    output: int,
    concurrency: int,
    ranks: int,
    reserved: int,
    shorter: int,
) -> None:
    server = state(
        pool_tokens=pool,
        context=context,
        page=page,
        draft_tokens=draft,
        ranks=ranks,
        reserved=reserved,
        longest_prompt=context - shorter,
        longest_request=context - 2,
    )
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
