"""What a decode curve proves: one small rule a finding, each documented in docs/cost-of-depth.md."""

from draftmark.explain.explanation import NOISY, Ceiling, Explanation
from draftmark.finding import Confidence, Finding, Remedy
from draftmark.observation import Observation, Source, Unit

_ATTENTION_RULES = 0.5
"""Share of the step from which the growing part is called its main cost."""
_SLOW = 0.3
"""Share of the ceiling below which the cache is not being read as a memory-bound kernel reads it."""


def findings(explanation: Explanation) -> tuple[Finding, ...]:
    """All findings of one explanation, the number of depths first."""
    found = [rule(explanation) for rule in (_too_few, _noisy, _flat, _growth, _slow_attention, _impossible, _fixed)]
    return tuple(finding for finding in found if finding)


def _seen(quantity: str, value: float, unit: Unit, text: str) -> Observation:
    return Observation(quantity=quantity, value=value, unit=unit, source=Source(place="the fit over depth", text=text))


def _too_few(explanation: Explanation) -> Finding | None:
    if explanation.step is not None and explanation.step.slope.low is not None:
        return None
    depths = len(explanation.rows)
    return Finding(
        code="too-few-depths",
        severity="note",
        confidence="certain",
        claim=f"depths measured: {depths}; too few to tell the fixed part from the growing one with an interval",
        evidence=(),
        remedies=(Remedy(changes=(), arithmetic="a line with an interval needs three depths", cost="a longer sweep"),),
    )


def _noisy(explanation: Explanation) -> Finding | None:
    noise = explanation.noise
    if noise is None or noise <= NOISY:
        return None
    return Finding(
        code="noisy-steps",
        severity="warning",
        confidence="certain",
        claim=f"half of the requests lie {noise:.0%} and more from their depth's median step: the machine is busy",
        evidence=(_seen("spread", noise, "ratio", "median distance from the median"),),
        remedies=(Remedy(changes=(), arithmetic="measure again on a quiet machine", cost="another sweep"),),
    )


def _flat(explanation: Explanation) -> Finding | None:
    step = explanation.step
    if step is None or step.slope.low is None or explanation.growth is not None:
        return None
    return Finding(
        code="growth-not-told-from-noise",
        severity="note",
        confidence="certain",
        claim="the interval of the slope holds zero: these points do not show that a step grows with depth",
        evidence=(_seen("seconds per token of depth", step.slope.value, "seconds", "b of a + b x depth"),),
        remedies=(Remedy(changes=(), arithmetic="deeper points or more repeats narrow it", cost="a longer sweep"),),
    )


def _growth(explanation: Explanation) -> Finding | None:
    step, share, growth = explanation.step, explanation.rows[-1].depth_share, explanation.growth
    if step is None or share is None or growth is None:
        return None
    rules = share >= _ATTENTION_RULES
    return Finding(
        code="attention-rules" if rules else "attention-grows",
        severity="warning" if rules else "note",
        confidence=growth,
        claim=f"{share:.0%} of a step at {explanation.deepest:,} tokens grows with depth",
        evidence=(
            _seen("fixed part", step.intercept.value, "seconds", "a of a + b x depth"),
            _seen("seconds per token of depth", step.slope.value, "seconds", "b of a + b x depth"),
        ),
    )


def _slow_attention(explanation: Explanation) -> Finding | None:
    rate, ceiling, step = explanation.cache_bandwidth, explanation.ceiling, explanation.step
    if rate is None or ceiling is None or step is None or explanation.better_kernel is None:
        return None
    share = rate.value / ceiling.bytes_per_second
    if share >= _SLOW or (explanation.rows[-1].depth_share or 0) < _ATTENTION_RULES:
        return None
    now = max(0.0, step.intercept.value) + step.slope.value * explanation.deepest
    return Finding(
        code="slow-attention-kernel",
        severity="warning",
        confidence=_slowness(explanation, ceiling),
        claim=(
            f"the cache is read at {share:.1%} of the bandwidth ({ceiling.kind}): "
            "the attention kernel sets the pace, not the memory"
        ),
        evidence=(_seen("cache bandwidth", rate.value, "bytes/second", "bytes a token / b"),),
        remedies=(
            Remedy(
                changes=(),
                arithmetic=(
                    f"with the cache read at that bandwidth a step at {explanation.deepest:,} tokens "
                    f"would take 1/{now / explanation.better_kernel:.1f} of its time"
                ),
                cost="another attention backend or kernel",
            ),
        ),
    )


def _slowness(explanation: Explanation, ceiling: Ceiling) -> Confidence:
    """Certain where even the upper end of the interval is slow."""
    rate = explanation.cache_bandwidth
    highest = rate.high if rate is not None else None
    sure = highest is not None and highest < _SLOW * ceiling.bytes_per_second
    return "certain" if sure and explanation.growth == "certain" else "likely"


def _impossible(explanation: Explanation) -> Finding | None:
    rate, ceiling = explanation.cache_bandwidth, explanation.ceiling
    if rate is None or rate.low is None or ceiling is None or rate.low <= ceiling.bytes_per_second:
        return None
    return Finding(
        code="bandwidth-above-ceiling",
        severity="warning",
        confidence="certain",
        claim=(
            "the cache seems to be read faster than the memory can: "
            "fewer bytes are read than counted, or it lies in a processor cache"
        ),
        evidence=(_seen("cache bandwidth", rate.value, "bytes/second", "bytes a token / b"),),
    )


def _fixed(explanation: Explanation) -> Finding | None:
    step, floor = explanation.step, explanation.weights_floor
    if step is None or floor is None or not step.intercept.low or step.intercept.low <= 0:
        return None
    overhead = 1 - floor / step.intercept.value
    if overhead < _ATTENTION_RULES:
        return None
    return Finding(
        code="overhead-rules-fixed-part",
        severity="note",
        confidence="likely",
        claim=f"{overhead:.0%} of the fixed part is not reading weights: launches, sampling, scheduling, the network",
        evidence=(
            _seen("fixed part", step.intercept.value, "seconds", "a of a + b x depth"),
            _seen("weights floor", floor, "seconds", "weight bytes a step / bandwidth"),
        ),
    )
