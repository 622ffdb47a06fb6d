"""Whether a point may be used, and what a reader should know of it. Pure."""

from statistics import median
from typing import Final

import msgspec

from draftmark.engines.metrics import Counters
from draftmark.physics.figures import figures
from draftmark.sample import TOO_NOISY, Mode, Point, Sample
from draftmark.sweep.dialect import Dialect
from draftmark.sweep.sender import Batch

RESTARTED: Final = "the server was restarted meanwhile"
BOS: Final = 1
"""Tokens that every prompt shares without a chat template."""
CHANCE: Final = 8
"""Tokens that the unique beginnings of two prompts may share by chance; a cache of single tokens finds them."""
AGREEMENT: Final = 0.02
"""Share by which the server's counters may differ from the usage of the requests."""
LATE: Final = 0.1
"""Share of a step by which this client may be late before a reader is told."""
SENT_LATE: Final = 0.01
"""Seconds after it was due when a request counts as late."""
NOISE: Final = 0.5
"""Half-width of the step time's interval, as a share of it, beyond which a point is too noisy to be used."""
GROWN: Final = 2.0
"""Times by which waits may grow while requests come at a rate before a reader is told."""
LEAST_WAITS: Final = 6
"""Requests of which a third at either end tells whether waits grow."""
BUSY: Final = 0.2
"""Share of its time that this client may spend on stamping before a reader is told."""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the server and of this client when points are judged."""

    dialect: Dialect
    mode: Mode
    chunk_cost: float
    """Seconds that stamping one chunk takes."""

    @property
    def shared(self) -> int:
        """Tokens that may be cached in a cold point: the template or BOS, and the first of a beginning."""
        return (self.dialect.overhead if self.dialect.overhead is not None else BOS) + CHANCE

    def invalid(self, point: Point, batches: tuple[Batch, ...]) -> str | None:
        """Why the point must not be used."""
        failed = next((sample.error for sample in point.samples if sample.error and not sample.warm_up), None)
        if failed is not None:
            return failed
        if any(batch.restarted for batch in batches):
            return RESTARTED
        for sample in point.measured:
            reason = self._sample_invalid(point, sample)
            if reason is not None:
                return reason
        cached = _total(batches, "cached")
        if self.mode == "cold" and cached is not None and cached > self.shared * _requests(batches):
            return f"the server's own counter says that {cached:,.0f} tokens came from its prefix cache: not a prefill"
        return None if point.measured else "nothing was measured"

    def _sample_invalid(self, point: Point, sample: Sample) -> str | None:
        if sample.prompt_tokens is not None and sample.prompt_tokens != point.asked:
            return f"asked for {point.asked:,} tokens, the server counted {sample.prompt_tokens:,}"
        if (sample.completion_tokens or 0) > point.output:
            return f"asked for {point.output:,} tokens of output, the server counted {sample.completion_tokens:,}"
        if self.mode == "cold" and (sample.cached_tokens or 0) > self.shared:
            return (
                f"{sample.cached_tokens:,} tokens came from the prefix cache (at most {self.shared} are shared by all"
                " prompts): not a prefill"
            )
        return None

    def flags(self, point: Point, batches: tuple[Batch, ...]) -> tuple[str, ...]:
        """What limits a valid point."""
        found = (
            self._usage_flag(point, batches),
            self._count_flag(point),
            self._length_flag(point),
            self._warm_flag(point),
            _preemption_flag(batches),
            _traffic_flag(batches),
            _step_flag(batches),
            self._client_flag(point, batches),
            _late_flag(point),
            _overload_flag(point),
            _gathered_flag(point),
            _noise_flag(point),
        )
        return tuple(flag for flag in found if flag is not None)

    def _usage_flag(self, point: Point, batches: tuple[Batch, ...]) -> str | None:
        if any(sample.prompt_tokens is None for sample in point.measured):
            return "the server reports no usage: tokens are unproven"
        silent = any(sample.cached_tokens is None for sample in point.measured)
        if self.mode == "cold" and silent and _total(batches, "cached") is None:
            return "cold by its unique beginning, not proved: the server reports no cached tokens"
        return None

    def _count_flag(self, point: Point) -> str | None:
        if any(sample.decode_tokens is None for sample in point.measured):
            return "tokens of the first chunk unknown: decode rate within bounds, and no use to `explain`"
        return None

    def _length_flag(self, point: Point) -> str | None:
        if any((sample.completion_tokens or point.output) < point.output for sample in point.measured):
            return "some answers ended before the output asked for"
        return None

    def _warm_flag(self, point: Point) -> str | None:
        if self.mode == "cold" or not point.measured:
            return None
        again = point.measured[point.concurrency :]
        if again and not any(sample.cached_tokens for sample in again):
            return "warm, but the server says of no cached tokens: prefills may have been done anew"
        return "warm: repeats of one prompt; TTFT is of what the shorter depth had not cached, intervals are of timing"

    def _client_flag(self, point: Point, batches: tuple[Batch, ...]) -> str | None:
        step = figures(point).step_time
        if step is None:
            return None
        busy = self.chunk_cost * point.concurrency / step.value if step.value else 0.0
        if busy > BUSY:
            return f"this client spends {busy:.0%} of its time on stamping chunks: it may be the bottleneck"
        late = max((batch.late for batch in batches if batch.late is not None), default=0.0)
        if late > max(LATE * step.value, 0.003):
            return f"this machine is busy: the client woke up to {late * 1000:.0f} ms late"
        return None


def _late_flag(point: Point) -> str | None:
    """Under a rate, requests that were not sent when they were due would hide the waiting that they cause."""
    if point.rate is None:
        return None
    late = [sample.sent - sample.due for sample in point.measured if sample.sent - sample.due > SENT_LATE]
    if not late:
        return None
    return f"{len(late)} requests were sent up to {max(late) * 1000:.0f} ms after they were due"


def _overload_flag(point: Point) -> str | None:
    """Where a server falls behind, each request waits longer than the one before, and no median is a property of it."""
    waits = [wait for sample in point.measured if (wait := sample.ttft_due) is not None]
    if point.rate is None or len(waits) < LEAST_WAITS:
        return None
    third = len(waits) // 3
    first, last = median(waits[:third]), median(waits[-third:])
    if last <= GROWN * first:
        return None
    return (
        f"waits grew from {first:.2g} to {last:.2g} s while requests came: the server falls behind at {point.rate:g} a"
        " second, and its medians depend on how many are sent"
    )


def _gathered_flag(point: Point) -> str | None:
    """Where a server or a proxy holds chunks back, neither TTFT nor steps are the engine's."""
    gathered = [sample for sample in point.measured if sample.gathered]
    if not gathered:
        return None
    chunks, moments = len(gathered[0].arrivals), gathered[0].moments
    times = "at one moment: decode time and step are unknown" if moments == 1 else f"at {moments} moments"
    return f"{chunks} chunks came {times}; the server or a proxy gathers its stream, and TTFT includes the wait for it"


def _noise_flag(point: Point) -> str | None:
    """A step time whose interval reaches this far says little more than that there was one."""
    step = figures(point).step_time
    if step is None or step.half_width is None or step.half_width <= NOISE:
        return None
    return f"{TOO_NOISY}the step time's interval reaches {step.half_width:.0%} away from its median"


def _requests(batches: tuple[Batch, ...]) -> int:
    return sum(len(batch.samples) for batch in batches)


def _total(batches: tuple[Batch, ...], name: str) -> float | None:
    """What the server counted over all batches; None unless it did so in each."""
    values = [getattr(batch.counted or Counters(), name) for batch in batches]
    return None if not values or None in values else sum(values)


def _preemption_flag(batches: tuple[Batch, ...]) -> str | None:
    preempted = _total(batches, "preemptions")
    if not preempted:
        return None
    return f"the server preempted or retracted {preempted:,.0f} requests: the pool was too small for this"


def _traffic_flag(batches: tuple[Batch, ...]) -> str | None:
    counted = _total(batches, "generated")
    ours = sum(sample.completion_tokens or 0 for batch in batches for sample in batch.samples)
    if counted is None or not ours or abs(counted - ours) <= max(AGREEMENT * ours, 2):
        return None
    return f"the server counted {counted:,.0f} generated tokens, these requests {ours:,}: it had other traffic"


def _step_flag(batches: tuple[Batch, ...]) -> str | None:
    """Chunks stand for verify steps; where the server counts steps, the two can be compared."""
    steps = _total(batches, "verify_steps")
    chunks = sum(len(sample.arrivals) for batch in batches for sample in batch.samples)
    if not steps or not chunks or abs(chunks - steps) <= 0.05 * steps + 2 * _requests(batches):
        return None
    return f"the server made {steps:,.0f} verify steps and sent {chunks:,} chunks: a chunk is not a step here"
