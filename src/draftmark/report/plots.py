"""Curves over depth as SVG, to stand inside a page."""

import io
import re
from collections.abc import Callable, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from draftmark.explain import Explanation
from draftmark.sample import Point
from draftmark.units import Seconds

_MEASURED: Final = "#0b6e99"
_FIT: Final = "#d9730d"
_FLOOR: Final = "#448361"


def step_time(explained: Explanation, points: Sequence[Point]) -> str:
    """Step time over depth: every request, the fitted line, and the memory floor where it is known."""
    figure, axes = _canvas("tokens of depth", "milliseconds a step")
    _scatter(axes, points, lambda depth, step, _: (depth, step * 1e3))
    deepest = float(explained.deepest)
    if explained.step is not None:
        ends = (0.0, deepest)
        axes.plot(ends, [explained.step.at(x) * 1e3 for x in ends], color=_FIT, label="a + b x depth")
        axes.axhline(
            explained.step.intercept.value * 1e3, color=_FIT, linestyle=":", linewidth=1, label="a: at any depth"
        )
    floors = [(float(row.depth), row.floor * 1e3) for row in explained.rows if row.floor is not None]
    if floors:
        axes.plot(*zip(*floors, strict=True), color=_FLOOR, linestyle="--", label="memory floor")
    return _svg(figure, axes)


def decode_rate(explained: Explanation, points: Sequence[Point]) -> str:
    """Decode rate of one stream over depth."""
    figure, axes = _canvas("tokens of depth", "tokens a second")
    _scatter(axes, points, lambda depth, _, per_token: (depth, 1 / per_token))
    if explained.per_token is not None:
        low, high = float(explained.rows[0].depth), float(explained.deepest)
        depths = [low + (high - low) * i / 60 for i in range(61)]
        fastest = 1.5 * max(1 / row.per_token for row in explained.rows)
        times = [(d, explained.per_token.at(d)) for d in depths]
        rates = [(d, 1 / t) for d, t in times if t * fastest > 1]
        if rates:
            axes.plot(*zip(*rates, strict=True), color=_FIT, label="from the fit")
    return _svg(figure, axes)


def first_token(explained: Explanation, points: Sequence[Point]) -> str:
    """Time to the first token over prompt length, cold prompts only."""
    figure, axes = _canvas("prompt tokens", "seconds to the first token")
    cold = [
        (float(sample.prompt_tokens), float(sample.ttft))
        for point in points
        if point.invalid is None and point.mode == "cold"
        for sample in point.measured
        if sample.prompt_tokens is not None and sample.ttft is not None
    ]
    if cold:
        axes.plot(*zip(*cold, strict=True), "o", color=_MEASURED, markersize=4, label="measured")
    if explained.prefill is not None:
        deepest = max((x for x, _ in cold), default=0.0)
        prompts = [deepest * i / 60 for i in range(61)]
        axes.plot(prompts, [explained.prefill.at(n) for n in prompts], color=_FIT, label="p n + q n²")
    return _svg(figure, axes)


def _canvas(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure, axes


def _scatter(
    axes: Axes, points: Sequence[Point], place: Callable[[float, Seconds, Seconds], tuple[float, float]]
) -> None:
    """Every timed request of the valid points, placed by depth, seconds a step and seconds a token."""
    dots = [
        place(sample.prompt_tokens + (sample.completion_tokens or 0) / 2, sample.step_time, sample.token_time)
        for point in points
        if point.invalid is None
        for sample in point.measured
        if sample.prompt_tokens is not None and sample.step_time and sample.token_time
    ]
    if dots:
        axes.plot(*zip(*dots, strict=True), "o", color=_MEASURED, markersize=4, alpha=0.7, label="measured")


def _svg(figure: Figure, axes: Axes) -> str:
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize="small")
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return re.sub(r"\A.*?(?=<svg)", "", text.getvalue(), flags=re.DOTALL)
