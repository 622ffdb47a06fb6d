"""Points into the store, sample by sample as they come."""

from draftmark.sample import Point
from draftmark.store import Store


class Keeper:
    """A sink for a sweep: what a point has gained is on disk when the call returns, and a closed point is closed."""

    def __init__(self, store: Store, run: int, *, trial: int | None = None) -> None:
        self._store, self._run, self._trial = store, run, trial
        self._row: int | None = None
        self._kept = 0

    def __call__(self, point: Point) -> None:
        """Keep the samples that are new; close the point unless more are to come."""
        if self._row is None:
            self._row = self._store.begin_point(
                self._run,
                asked=point.asked,
                output=point.output,
                concurrency=point.concurrency,
                mode=point.mode,
                rate=point.rate,
                content=point.content,
                trial=self._trial,
            )
        self._store.add_samples(self._row, point.samples[self._kept :])
        self._kept = len(point.samples)
        if not point.open:
            self._store.end_point(self._row, invalid=point.invalid, flags=point.flags)
            self._row, self._kept = None, 0
