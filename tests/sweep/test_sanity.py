import json
import math

from draftmark.sweep.sanity import Sanity, flag, judge, planted


def answer(text: str, logprobs: list[float | None] | None = None) -> bytes:
    tokens = text.split()
    found = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens) if logprobs is None else logprobs}
    return json.dumps({"choices": [{"text": text, "logprobs": found}]}).encode()


SOUND = "It is 123456 and the harbour is quiet tonight"


def seen(content: bytes, depth: int = 1000) -> Sanity:
    found = judge(content, depth=depth, number=123456)
    assert found is not None
    return found


def test_a_sound_answer_is_not_flagged() -> None:
    first = seen(answer(SOUND))
    assert (first.found, first.finite, first.varied) == (True, True, True)
    assert flag(first, first) is None


def test_chats_are_read_as_well() -> None:
    content = {
        "choices": [{"message": {"content": "123,456"}, "logprobs": {"content": [{"token": "1", "logprob": 0}]}}]
    }
    found = seen(json.dumps(content).encode())
    assert (found.found, found.finite, found.varied) == (True, True, None)


def test_a_fact_lost_at_depth_is_flagged_only_where_it_was_found_before() -> None:
    first, deep = seen(answer(SOUND)), seen(answer(SOUND.replace("123456", "none")), depth=9000)
    assert "found at 1,000 tokens" in str(flag(deep, first))
    assert "cannot be told" in str(flag(deep, deep))
    assert flag(seen(answer("none of it is there or here at all")), deep) is None


def test_garbage_is_flagged() -> None:
    first = seen(answer(SOUND))
    assert "over and over" in str(flag(seen(answer("! " * 20)), first))
    nan = seen(answer(SOUND, [math.nan]))
    assert nan.finite is False
    assert "not finite" in str(flag(nan, first))
    assert "not finite" in str(flag(seen(answer(SOUND, [None])), first))
    assert "not checked" in str(flag(None, first))


def test_the_fact_lies_between_two_lines() -> None:
    text = planted("one\ntwo\nthree\nfour\n", 123456)
    assert "\nThe harbour master's number is 123456.\n" in text
    assert text.endswith("number is")
