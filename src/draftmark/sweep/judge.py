"""Whether a point may be used, and what a reader should know of it. Pure."""

from typing import Final

import msgspec

from draftmark.observation import ServerState
from draftmark.sample import Mode, Point, Sample
from draftmark.sweep.dialect import Dialect

ALIGNMENT: Final = 1
"""Tokens that every prompt shares without a chat template: BOS."""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the server when its points are judged."""

    state: ServerState
    dialect: Dialect
    mode: Mode

    @property
    def shared(self) -> int:
        """Tokens that every prompt begins with, and that may be cached in a cold point: the template, BOS."""
        return self.dialect.overhead if self.dialect.overhead is not None else ALIGNMENT

    def invalid(self, point: Point) -> str | None:
        """Why the point must not be used."""
        failed = next((sample.error for sample in point.samples if sample.error and not sample.warm_up), None)
        if failed is not None:
            return failed
        for sample in point.measured:
            reason = self._sample_invalid(point, sample)
            if reason is not None:
                return reason
        return None if point.measured else "nothing was measured"

    def _sample_invalid(self, point: Point, sample: Sample) -> str | None:
        if sample.prompt_tokens is not None and sample.prompt_tokens != point.asked:
            return f"asked for {point.asked:,} tokens, the server counted {sample.prompt_tokens:,}"
        if self.mode == "cold" and (sample.cached_tokens or 0) > self.shared:
            return (
                f"{sample.cached_tokens:,} tokens came from the prefix cache (at most {self.shared} are shared by all"
                " prompts): not a prefill"
            )
        return None

    def flags(self, point: Point) -> tuple[str, ...]:
        """What limits a valid point."""
        samples = point.measured
        flags = []
        if any(sample.prompt_tokens is None for sample in samples):
            flags.append("the server reports no usage: tokens are unproven")
        elif self.mode == "cold" and any(sample.cached_tokens is None for sample in samples):
            flags.append("cold by its unique beginning, not proved: the server reports no cached tokens")
        if any(sample.decode_tokens is None for sample in samples):
            flags.append("tokens of the first chunk unknown: decode rate within bounds")
        if any(sample.completion_tokens is not None and sample.completion_tokens < point.output for sample in samples):
            flags.append("some answers ended before the output asked for")
        if self.mode == "warm":
            flags.append("warm: repeats of one prompt, intervals cover timing and not text")
            if samples and all(not sample.cached_tokens for sample in samples[1:]) and len(samples) > 1:
                flags.append("no prefix was reused (or the server does not say): every prefill was done anew")
        return tuple(flags)
