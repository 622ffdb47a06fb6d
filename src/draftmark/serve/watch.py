"""Follows one engine by its log: the phase it is in, what it states, and how it ended."""

import re
import time
from collections import deque
from pathlib import Path
from typing import Final

from draftmark.diagnose.log import read
from draftmark.engines import allocator
from draftmark.engines.adapter import LogReader
from draftmark.observation import Observation, Phase
from draftmark.serve.events import Activity, Note, Observed, PhaseEntered, Progress
from draftmark.serve.launcher import REMOTE_PROCESS
from draftmark.serve.log import Tail
from draftmark.serve.process import Exit
from draftmark.trial import Crashed, OutOfMemory
from draftmark.units import Bytes, BytesPerSecond, Seconds

_SHARE: Final = re.compile(r"(\d{1,3})%\s*(?:Completed\s*)?\|")
_SETTLE: Final = 0.3
"""Seconds between an engine's end and the last look at its log: its children may still be writing."""
_LAST_LINES: Final = 200
"""Among which the reason is looked for: what leaks and warns at an engine's end can be a hundred lines."""


class Watch:
    """Reads the log at each `step`; keeps what the engine stated.

    Args:
        log: the file.
        reader: the engine's reader.
        progress: told of every step.
        weights: bytes that one rank loads, where they were predicted, for the rate.
    """

    def __init__(self, log: str, reader: LogReader, progress: Progress, weights: Bytes | None = None) -> None:
        self._tail, self._reader, self._progress = Tail(Path(log)), reader, progress
        self._place, self._weights = log, weights
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._shown = ""
        self.remote_process: int | None = None
        self.phase: Phase = "init"
        self.entered = self.began = time.monotonic()
        self.observations: list[Observation] = []
        progress(PhaseEntered(phase="init", at=Seconds(0.0)))

    @property
    def in_phase(self) -> Seconds:
        """Seconds since the present phase was entered."""
        return Seconds(time.monotonic() - self.entered)

    def note(self, text: str) -> None:
        """Tell the user something: one line."""
        self._progress(Note(text=text))

    def step(self) -> None:
        """Read what was written since, and tell of it."""
        for number, line in self._tail.poll():
            self._line(number, line)
        self._activity(self._tail.partial)

    def finish(self) -> None:
        """Read the rest, after the engine's end."""
        time.sleep(_SETTLE)
        for number, line in self._tail.finish():
            self._line(number, line)

    def close(self) -> None:
        """Give the log back."""
        self._tail.close()

    def ended(self, how: Exit) -> OutOfMemory | Crashed:
        """Why the engine ended by itself, by what it said last."""
        failures = [seen for seen in self.observations if seen.quantity == "out_of_memory"]
        if failures:
            return self._out_of_memory(failures[0], self._phase_by_stack(failures[0].phase))
        message = next((line for line in reversed(self._last) if _says_why(line)), self._last[-1] if self._last else "")
        return Crashed(phase=self.phase, exit_code=how.code, signal=how.signal, message=message.strip()[:1000])

    def _line(self, number: int, line: str) -> None:
        if self.remote_process is None and (match := REMOTE_PROCESS.match(line)):
            self.remote_process = int(match.group(1))
        failed = allocator.read(line, number, self._place, self._reader.phase)
        seen = self._reader.feed(line, number)
        known = {(one.quantity, one.rank) for one in failed}
        for observation in (*failed, *(one for one in seen if (one.quantity, one.rank) not in known)):
            self.observations.append(observation)
            self._progress(Observed(observation=observation))
            if observation.quantity == "not_understood":
                self.note(f"line {number} of the log speaks of memory but is not understood: {line}")
        if line.strip():
            self._last.append(line.rsplit("\r", 1)[-1])
        if self._reader.phase not in {self.phase, "unknown"}:
            self.phase, self.entered = self._reader.phase, time.monotonic()
            self._progress(PhaseEntered(phase=self.phase, at=Seconds(self.entered - self.began)))

    def _activity(self, text: str) -> None:
        if not text.strip() or text == self._shown:
            return
        self._shown = text
        match = _SHARE.search(text)
        done = min(1.0, int(match.group(1)) / 100) if match else None
        passed = self.in_phase
        remaining = Seconds(passed * (1 - done) / done) if done else None
        rate = None
        if done and self._weights is not None and self.phase == "weights":
            rate = BytesPerSecond(done * self._weights / passed)
        self._progress(Activity(phase=self.phase, text=text.strip()[:300], done=done, remaining=remaining, rate=rate))

    def _phase_by_stack(self, marked: Phase) -> Phase:
        """What the engine was doing, by the functions on its stack where they tell more than the last marker."""
        with Path(self._place).open("rb") as log:
            last = read(log, self._place)[-1]
        first = last.failures[0] if last.failures else None
        return first.phase if first is not None and first.place is not None else marked

    def _out_of_memory(self, first: Observation, phase: Phase) -> OutOfMemory:
        same = {one.quantity: one.value for one in self.observations if one.source == first.source}

        def amount(quantity: str) -> Bytes | None:
            value = same.get(quantity)
            return Bytes(int(value)) if isinstance(value, int | float) else None

        return OutOfMemory(
            phase=phase,
            message=str(first.value),
            tried=amount("tried"),
            free=amount("free_at_failure"),
            allocated=amount("allocated"),
            reserved_unallocated=amount("reserved_unallocated"),
            private_pools=amount("private_pools"),
        )


def _says_why(line: str) -> bool:
    """Whether a line names an error (the last such line of a traceback is the one that matters)."""
    return bool(
        re.search(
            r"\b\w*(Error|Exception|Fatal)\b|^\W*Value error, |\bfatal\b|\bKilled\b|Segmentation fault|Segfault|"
            r"Aborted|^(?:docker|podman|nerdctl|ssh|srun|sudo|env|sh|bash): ",
            line,
        )
    )
