"""Shadow mode: both kernels run on the server's own data, and every node's and head's output is compared on the device.

The comparison is part of the captured graphs; its counts are read back between them, when a long prefill runs eagerly.
"""

import logging
import time
from typing import Final

import torch

from draftmark.kernels.mla_verify.problem import Problem

TOLERANCE: Final = 2e-2
"""Relative difference of one row (node and head) above which it counts; both outputs are rounded to bf16."""
EVERY: Final = 1.0
"""Seconds between reports, at least."""
COUNTS: Final = ("rows", "rows over tolerance", "calls", "calls with a batch", "calls with ragged lengths", "longest")


class Shadow:
    """Counts of one backend, kept on the device."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._counts: torch.Tensor | None = None
        self._worst: torch.Tensor | None = None
        self._reported = time.monotonic()

    def compare(self, problem: Problem, ours: torch.Tensor, engine: torch.Tensor) -> None:
        """Add one call's rows to the counts: relative difference of each node's and head's output.

        Graphs pad a batch with requests of no meaning; where those are NaN, both kernels must say so.
        """
        if self._counts is None or self._worst is None:
            if torch.cuda.is_current_stream_capturing():
                return
            self._counts = torch.zeros(len(COUNTS), dtype=torch.float64, device=ours.device)
            self._worst = torch.zeros((), dtype=torch.float64, device=ours.device)
        difference = (ours.float() - engine.float()).norm(dim=-1) / engine.float().norm(dim=-1).clamp_min(1e-20)
        owned = torch.arange(ours.shape[0], device=ours.device) < problem.query_indptr[-1]
        neither = ours.isnan().any(dim=-1) & engine.isnan().any(dim=-1)
        difference = torch.where(owned[:, None] & ~neither, difference, 0.0).nan_to_num(nan=torch.inf)
        lengths = problem.cache_indptr.diff()
        self._worst.copy_(torch.maximum(self._worst, difference.amax().double()))
        longest = torch.maximum(self._counts[5], lengths.amax().double())
        self._counts[0].add_(owned.sum() * problem.heads)
        self._counts[1].add_((difference > TOLERANCE).sum())
        self._counts[2].add_(1)
        self._counts[3].add_(int(problem.requests > 1))
        self._counts[4].add_((lengths.amax() != lengths.amin()).double())
        self._counts[5].copy_(longest)

    def report(self) -> None:
        """Log the counts, unless a graph is being captured or the last report is fresh."""
        if self._counts is None or self._worst is None or torch.cuda.is_current_stream_capturing():
            return
        if time.monotonic() - self._reported < EVERY:
            return
        self._reported = time.monotonic()
        counts = ", ".join(f"{name} {int(count)}" for name, count in zip(COUNTS, self._counts.tolist(), strict=True))
        self._logger.info("shadow: %s, worst relative difference %.3e", counts, float(self._worst))
