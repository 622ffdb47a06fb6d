"""An explanation for the terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.explain import Explanation
from draftmark.physics.fits import Coefficient
from draftmark.report.findings import findings
from draftmark.report.quantities import bandwidth, count, duration, per_second, share


def explanation(explained: Explanation) -> RenderableType:
    """The rows, the fit in words, and what it proves."""
    pieces: list[RenderableType] = [rows(explained), Text("\n".join(sentences(explained)))]
    if explained.findings:
        pieces += [Text(), findings(explained.findings)]
    return Group(*pieces)


def rows(explained: Explanation) -> Table:
    """One row a depth: the step, its two parts, and the least it could be."""
    table = Table(title=f"Why a step takes what it takes, concurrency {explained.concurrency}", title_justify="left")
    for heading in ("depth", "step", "tokens/step", "tok/s", "grows with depth", "memory floor", "of floor"):
        table.add_column(heading, justify="right")
    for row in explained.rows:
        table.add_row(
            count(row.depth),
            duration(row.step),
            f"{row.tokens_per_step:.2f}",
            per_second(1 / row.per_token),
            share(row.depth_share),
            duration(row.floor),
            f"{row.step / row.floor:.1f}x" if row.floor else "–",
        )
    return table


def sentences(explained: Explanation) -> list[str]:
    """What the fit says, a line each; what could not be worked out is said too."""
    said = [_formula(explained)]
    if explained.crossover is not None:
        said.append(f"Both parts are equal at {count(explained.crossover)} tokens; beyond, depth rules.")
    said += _cache(explained)
    if explained.weights_floor is not None and explained.step is not None and explained.step.intercept.value > 0:
        floor = duration(explained.weights_floor)
        said.append(f"Reading the weights once takes at least {floor} of the fixed {_range(explained.step.intercept)}.")
    if explained.better_kernel is not None and explained.step is not None:
        now, then = explained.rows[-1].step, explained.better_kernel
        said.append(
            f"With the cache read at that bandwidth, a step at {count(explained.deepest)} tokens would take "
            f"{duration(then)} instead of {duration(now)}."
        )
    if explained.prefill is not None:
        linear, quadratic = explained.prefill.linear.value, explained.prefill.quadratic.value
        said.append(f"Prefill of n tokens: {duration(linear)} x n + {quadratic:.3g} s x n².")
    return said


def _formula(explained: Explanation) -> str:
    if explained.step is None:
        return "One depth only: the fixed part cannot be told from the growing one."
    step = explained.step
    return f"Step time = {_range(step.intercept)} + {_range(step.slope)} x tokens of depth, from {step.points} depths."


def _cache(explained: Explanation) -> list[str]:
    if explained.reads.cache_per_token is None:
        why = explained.reads.why or "name the model with --model"
        return [f"Bytes that a token of depth makes a step read are not known, so the slope is no bandwidth: {why}."]
    said = f"Each token of depth is {count(explained.reads.cache_per_token)} bytes ({explained.reads.why})"
    if explained.cache_bandwidth is None:
        return [f"{said}; no growth was found that could be turned into a bandwidth."]
    said += f", so the cache is read at {bandwidth(explained.cache_bandwidth.value)}{_rates(explained.cache_bandwidth)}"
    if explained.ceiling is None:
        return [f"{said}; no bandwidth to hold it against (--bandwidth)."]
    ceiling = explained.ceiling
    part = share(explained.cache_bandwidth.value / ceiling.bytes_per_second)
    return [f"{said}: {part} of {bandwidth(ceiling.bytes_per_second)} ({ceiling.kind}: {ceiling.source})."]


def _range(estimate: Coefficient) -> str:
    if estimate.low is None or estimate.high is None:
        return duration(estimate.value)
    return f"{duration(estimate.value)} ({duration(estimate.low)} to {duration(estimate.high)})"


def _rates(estimate: Coefficient) -> str:
    if estimate.low is None and estimate.high is None:
        return ""
    return f" ({bandwidth(estimate.low)} to {bandwidth(estimate.high) if estimate.high else 'unbounded'})"
