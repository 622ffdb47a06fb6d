"""What /metrics tells, in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)


class Metrics:
    """Counters of one engine, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._running = Gauge("draftmark_requests_running", "Requests being served", registry=self.registry)
        self._waiting = Gauge("draftmark_requests_waiting", "Requests waiting for the pool", registry=self.registry)
        self._used = Gauge("draftmark_pool_used_tokens", "Tokens of the pool that are reserved", registry=self.registry)
        self.pool = Gauge("draftmark_pool_tokens", "Tokens of the pool", registry=self.registry)
        self.prompt = Counter("draftmark_prompt_tokens", "Prompt tokens prefilled", registry=self.registry)
        self.generated = Counter("draftmark_generated_tokens", "Tokens generated", registry=self.registry)
        self.finished = Counter("draftmark_requests_finished", "Requests ended", ["reason"], registry=self.registry)
        self.ttft = Histogram(
            "draftmark_time_to_first_token_seconds",
            "From a request's arrival to its first token",
            buckets=SECONDS,
            registry=self.registry,
        )

    def watch(self, *, running: Callable[[], int], waiting: Callable[[], int], used: Callable[[], int]) -> None:
        """Read these when asked, instead of being told."""
        self._running.set_function(running)
        self._waiting.set_function(waiting)
        self._used.set_function(used)

    def value(self, name: str, **labels: str) -> float:
        """One number, by its name in the text; 0 where it was never touched."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
