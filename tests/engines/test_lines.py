"""Cutting logs to lines: colours, progress bars, junk, and lines of any length."""

from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.lines import LONGEST, LineCutter, clean


def cut(*blocks: bytes) -> list[str]:
    cutter = LineCutter()
    lines = [line for block in blocks for line in cutter.feed(block)]
    return lines + cutter.finish()


def test_colours_and_control_characters_go() -> None:
    assert clean(b"\x1b[1;31mERROR\x1b[0m out\x00 of\x08 mem\x1b]0;title\x07ory\r") == "ERROR out of memory"


def test_what_is_not_text_stays_one_line() -> None:
    assert cut(b"\xff\xfe\x00binary\x01\nnext") == ["��binary", "next"]


def test_progress_bars_keep_their_states_in_one_line() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"load:  10%|\rload:  50%|") == []
    assert cutter.partial == "load:  50%|"
    assert cutter.feed(b"\rload: 100%|\n") == ["load:  10%|\rload:  50%|\rload: 100%|"]


def test_an_endless_line_keeps_both_ends_in_bounded_memory() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"start") == []
    for _ in range(100):
        assert cutter.feed(b"x" * LONGEST) == []
    (line,) = cutter.feed(b"end\n")
    assert line.startswith("start")
    assert line.endswith("end")
    assert len(line) <= 2 * LONGEST


@given(st.lists(st.text(alphabet="ab \n", max_size=20), max_size=10))
def test_where_blocks_are_cut_does_not_matter(blocks: list[str]) -> None:
    whole = "".join(blocks)
    assert cut(*(block.encode() for block in blocks)) == cut(whole.encode())
    assert "\n".join(cut(whole.encode())) == whole.removesuffix("\n")
