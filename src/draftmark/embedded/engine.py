"""The engine: one thread that loads the model, reserves the pool and serves requests in turns.

A turn is one chunk of prefill for the request that came first, and one token for every request past its prefill.
Requests wait, first come first served, until the pool has room for their prompt and all the output they may make.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import torch
from transformers import Cache

from draftmark.embedded.generation import Sampling, choose
from draftmark.embedded.loading import Loaded
from draftmark.embedded.metrics import Metrics
from draftmark.embedded.pool import Slab

log: Final = logging.getLogger("draftmark.embedded")

Finish = Literal["stop", "length"]


class Token(msgspec.Struct, frozen=True):
    """One token of output; `finish` is set on the last."""

    id: int
    finish: Finish | None


class Request:
    """One request and how far it is. `emit` is called from the engine's thread, once a token."""

    def __init__(
        self, prompt: tuple[int, ...], limit: int, sampling: Sampling, *, ignore_eos: bool, emit: Callable[[Token], Any]
    ) -> None:
        self.prompt, self.limit, self.sampling, self.ignore_eos, self.emit = prompt, limit, sampling, ignore_eos, emit
        self.number = 0
        self.arrived = time.monotonic()
        self.cancelled: str | None = None
        self.output: list[int] = []
        self.prefilled = 0
        self.finish: Finish | None = None
        self.generator = sampling.generator()
        self.slab: Slab | None = None
        self.cache: Cache | None = None

    @property
    def reach(self) -> int:
        """Tokens of the pool that it needs: the prompt and all the output it may make."""
        return len(self.prompt) + self.limit

    @property
    def over(self) -> bool:
        """Whether it takes no more turns."""
        return self.cancelled is not None or self.finish is not None


class Engine:
    """Serves requests on what was loaded. `serve` runs on one thread; the rest may be called from any."""

    def __init__(self, loaded: Loaded, metrics: Metrics) -> None:
        self.loaded = loaded
        self.activity = "idle"
        """What the thread is doing, for the log where it fails."""
        self.metrics = metrics
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._count = 0
        metrics.watch(
            running=lambda: len(self._running), waiting=lambda: len(self._waiting), used=lambda: loaded.pool.used
        )

    def submit(self, request: Request) -> None:
        """Queue a request; its `reach` must be within pool and context."""
        assert request.reach <= self.loaded.limit
        with self._changed:
            self._count += 1
            request.number = self._count
            self._waiting.append(request)
            self._changed.notify()

    def cancel(self, request: Request, *, reason: str) -> None:
        """Take no more turns for a request; one that has ended already is left as it is."""
        with self._changed:
            request.cancelled = reason
            self._changed.notify()

    def stop(self) -> None:
        """Make `serve` return after the turn in progress."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    @torch.inference_mode()
    def serve(self) -> None:
        """Take turns until stopped."""
        while self._next_turn():
            prefilling = [request for request in self._running if request.prefilled < len(request.prompt)]
            decoding = [request for request in self._running if request.prefilled == len(request.prompt)]
            for request in (*prefilling[:1], *decoding):
                if not request.over:
                    self._advance(request)
            self.activity = "idle"

    def _next_turn(self) -> bool:
        """Clear what is over, admit what fits, wait while there is nothing to do; false once stopping."""
        with self._changed:
            while not self._stopping:
                self._clear()
                self._admit()
                if self._running:
                    return True
                self._changed.wait()
        return False

    def _clear(self) -> None:
        for request in (*self._running, *self._waiting):
            if request.over:
                if request.slab:
                    self.loaded.pool.release(request.slab)
                reason = request.finish or request.cancelled
                self.metrics.finished.labels(reason=reason).inc()
                log.info("request=%d finished reason=%s output=%d", request.number, reason, len(request.output))
        self._running = [request for request in self._running if not request.over]
        self._waiting = deque(request for request in self._waiting if not request.over)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.loaded.max_running:
            request = self._waiting[0]
            slab = self.loaded.pool.reserve(request.reach)
            if slab is None:
                return
            request.slab, request.cache = slab, self.loaded.pool.cache(slab)
            self._running.append(self._waiting.popleft())
            waited = time.monotonic() - request.arrived
            log.info(
                "request=%d admitted prompt=%d limit=%d pool_used=%d waited=%.3f",
                request.number, len(request.prompt), request.limit, self.loaded.pool.used, waited,
            )  # fmt: skip

    def _advance(self, request: Request) -> None:
        """One forward pass: a chunk of the prompt, or the last token of the output."""
        if request.output:
            self.activity = f"phase=decode request={request.number} depth={request.prefilled + len(request.output)}"
            tokens = request.output[-1:]
        else:
            tokens = list(request.prompt[request.prefilled : request.prefilled + self.loaded.chunk])
            self.activity = f"phase=prefill request={request.number} depth={request.prefilled} chunk={len(tokens)}"
        assert request.cache is not None
        logits = self.loaded.forward(tokens, request.cache)
        if not request.output:
            request.prefilled += len(tokens)
            if request.prefilled < len(request.prompt):
                return
            self.metrics.prompt.inc(len(request.prompt))
        self._take(request, choose(logits, request.sampling, request.generator))

    def _take(self, request: Request, token: int) -> None:
        request.output.append(token)
        self.metrics.generated.inc()
        if len(request.output) == 1:
            self.metrics.ttft.observe(time.monotonic() - request.arrived)
        if token in self.loaded.end_tokens and not request.ignore_eos:
            request.finish = "stop"
        elif len(request.output) == request.limit:
            request.finish = "length"
        request.emit(Token(token, request.finish))
