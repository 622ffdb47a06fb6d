import io
import re

import pytest
from rich.console import Console

from draftmark.physics.statistics import Median
from draftmark.report.sweep import _spread, points, sending
from draftmark.sample import Arrival, Point, Sample
from draftmark.sweep import Sending
from draftmark.units import Seconds, Tokens


def sample(scale: float, due: float) -> Sample:
    arrivals = tuple(
        Arrival(at=Seconds(0.512345 + 0.0171234 * scale * step), tokens=Tokens(1 + step)) for step in range(32)
    )
    return Sample(
        due=Seconds(due),
        sent=Seconds(due),
        arrivals=arrivals,
        ended=arrivals[-1].at,
        prompt_tokens=Tokens(131_072),
        cached_tokens=Tokens(0),
        completion_tokens=Tokens(32),
        counted_by="usage per chunk",
    )


def point(**more: object) -> Point:
    samples = tuple(sample(scale, index) for index, scale in enumerate((1.0, 1.1, 1.3)))
    fields = {"asked": 131_072, "output": 32, "concurrency": 16, "rate": 2.5, "samples": samples} | more
    return Point(**fields)  # type: ignore[arg-type]


def shown(width: int, *measured: Point) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(points(measured))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 240])
def test_no_number_is_cut_at_any_width(width: int) -> None:
    measured = (point(), point(asked=16_384, invalid="the server was restarted meanwhile", flags=("noted",)))
    text, wide = shown(width, *measured), shown(400, *measured)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    numbers = re.findall(r"[\d.,]+\d", wide)
    assert len(numbers) > 20
    for number in numbers:
        assert number in text
    for heading in ("TTFT", "prefill tok/s", "decode tok/s", "step", "tokens/step", "note"):
        assert heading in text


def test_a_table_is_one_where_there_is_room() -> None:
    assert "│" in shown(200, point())
    assert "│" not in shown(60, point())


@pytest.mark.parametrize(
    ("half_width", "shown"), [(0.0001, "2"), (0.02, "2 ±2.0%"), (9.9, "2 ±990%"), (168_888.0, "2 ±>999%")]
)
def test_an_interval_that_says_nothing_is_not_spelt_out(half_width: float, shown: str) -> None:
    estimate = Median(value=2.0, low=1.9999, high=2 * (1 + half_width), count=3, method="log student")
    assert _spread(estimate, lambda value: f"{value:g}") == shown


def test_what_is_under_way_at_a_rate_says_how_long_it_takes() -> None:
    event = Sending(
        asked=Tokens(1000), concurrency=1, rate=0.5, repeat=1, predicted=None, requests=20, lasts=Seconds(40.0)
    )
    assert sending(event) == "1,000 tokens at 0.5 requests/s, 20 that come over 40.00 s, repeat 1"
