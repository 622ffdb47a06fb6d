"""Reading a log of any size in one pass: starts, what each stated, and every sign of trouble, in bounded memory."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import msgspec

from draftmark.configuration import EngineName
from draftmark.diagnose import frames, requests, settings, signs
from draftmark.diagnose.calm import LONGEST_TEXT, Calm
from draftmark.diagnose.frames import Place
from draftmark.diagnose.settings import Settings
from draftmark.diagnose.signs import Sign
from draftmark.engines import allocator, known
from draftmark.engines.adapter import LogReader
from draftmark.engines.lines import LineCutter, clean
from draftmark.observation import Observation, Phase, Source

_BLOCK: Final = 1 << 16
_MOST_OBSERVATIONS: Final = 4000
MOST_OF_A_SIGN: Final = 20
_MOST_STARTS: Final = 200
_TRACEBACK: Final = 150
_LAST_LINES: Final = 12
_OVERLAP: Final = 8192
"""Bytes before a block with signs that are read too: what the engine was doing."""
_ENDS: Final = frozenset({"asked to end", "ended itself"})
_SERVING: Final = frozenset({"ready", "prefill", "decode", "stopping"})
_PREFIX: Final = re.compile(
    r"^\s*(?:\(\w+(?: \w+=\w+)*\)\s*|\[\d{4}-[^\]]*\]\s*|(?:ERROR|CRITICAL) [\d:. -]+\[[\w./]+:\d+\]\s*)+"
)
"""What engines write before each line of a message: process, level, time, and place in their source."""
_RAISED: Final = re.compile(r"(?:[A-Za-z_][\w.]*)?(?:Error|Exception|\berrors\.[A-Z]\w*)(?::\s|$)")

_CLOSING: Final = re.compile(r"(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?::\s|$)")
"""What ends a traceback by a name that says neither Error nor Exception: `subprocess.TimeoutExpired`, `queue.Empty`."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failed allocation: what the allocator said, and where the engine was."""

    observations: tuple[Observation, ...]
    phase: Phase
    place: Place | None


class Start:
    """What one start of an engine left in the log."""

    def __init__(self, engine: EngineName | None) -> None:
        self.engine: EngineName | None = engine
        self.phase: Phase = "init"
        self.observations: list[Observation] = []
        self.failures: list[Failure] = []
        self.signs: dict[str, list[Sign]] = {}
        self.errors: list[Observation] = []
        self.settings = Settings()
        self.tail: deque[tuple[str, int, str]] = deque(maxlen=_LAST_LINES)
        """Place, number and text of the last lines."""
        self.answered = 0
        """Number of the last line that tells of a request answered well; 0 where none does."""
        self.stepped = 0
        """Number of the last line that tells of a step or of throughput; 0 where none does."""
        self.running: int | None = None
        """Requests at once, by the last step that was told of before there was any trouble."""

    @property
    def last(self) -> tuple[Observation, ...]:
        """The last lines that are not empty."""
        return tuple(
            _said("last line", Source(place=place, line=number, text=_shown(line)), self.phase)
            for place, number, line in self.tail
        )

    def survived(self, line: int) -> bool:
        """Whether the server stepped and answered after this line, and nothing since speaks of an end."""
        if line >= min(self.answered, self.stepped):
            return False
        ends = ("ended itself", "worker died", "killed")
        later = [sign.source.line or 0 for name in ends for sign in self.signs.get(name, [])]
        return all(number < line for number in later)

    @property
    def last_errors(self) -> list[Observation]:
        """Exceptions that the server did not survive."""
        return [seen for seen in self.errors if not self.survived(seen.source.line or 0)]

    @property
    def troubled(self) -> bool:
        """Whether anything in it speaks of trouble; an end that was asked for is none."""
        return bool(
            self.failures or self.signs.keys() - _ENDS or (self.last_errors and "asked to end" not in self.signs)
        )


def read(stream: BinaryIO, place: str) -> tuple[Start, ...]:
    """All starts in a log, oldest first (of very many, the first ones are left out)."""
    parser = _Parser(place)
    for number, line in _lines(stream, lambda: parser.serving):
        parser.line(line, number)
    return tuple(parser.starts)


class _Parser:
    """Follows one log. Until something marks the engine, every adapter's reader is asked."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._readers: dict[EngineName, LogReader] = {name: known.adapter(name).reader(place) for name in known.NAMES}
        self.starts: deque[Start] = deque([Start(None)], maxlen=_MOST_STARTS)
        self._traceback: deque[str] = deque(maxlen=_TRACEBACK)
        self._raising = False
        """Whether a traceback has begun whose exception was not read yet."""
        self._next = Settings()
        """What is set after trouble: it belongs to the start that follows."""

    @property
    def serving(self) -> bool:
        """Whether the engine is past its start, so that lines without a hint need not be looked at."""
        return self.starts[-1].phase in _SERVING

    def line(self, line: str, number: int) -> None:
        line = requests.without_request(line)
        seen, phase = self._read(line, number)
        if any(one.quantity == "start" for one in seen):
            self._begin()
        start = self.starts[-1]
        start.phase = phase
        if seen:
            self._keep(start, tuple(one for one in seen if one.quantity != "not_understood"))
        self._trouble(start, line, number)
        (self._next if start.troubled and not settings.listed(line) else start.settings).read(line)
        if requests.answered(line):
            start.answered = number
        if requests.stepped(line):
            start.stepped = number
            if not start.troubled:
                start.running = requests.running(line)
        if line and not line.isspace():
            start.tail.append((self._place, number, line))

    def _begin(self) -> None:
        start = self.starts[-1]
        if start.observations or start.troubled:
            fresh = Start(start.engine)
            fresh.settings, self._next = self._next, Settings()
            fresh.settings.variables = start.settings.variables | fresh.settings.variables
            self.starts.append(fresh)

    def _read(self, line: str, number: int) -> tuple[tuple[Observation, ...], Phase]:
        engine = self.starts[-1].engine
        if engine is not None and "engine=" not in line and "server_args=" not in line and "args:" not in line:
            reader = self._readers[engine]
            return reader.feed(line, number), reader.phase
        for name, reader in self._readers.items():
            before = reader.phase
            seen = reader.feed(line, number)
            if reader.phase != before or any(one.quantity != "not_understood" for one in seen):
                self.starts[-1].engine = name
                return seen, reader.phase
        return (), self.starts[-1].phase

    def _keep(self, start: Start, seen: tuple[Observation, ...]) -> None:
        room = _MOST_OBSERVATIONS - len(start.observations)
        start.observations += seen[:room]

    def _trouble(self, start: Start, line: str, number: int) -> None:
        if "Traceback (most recent call last)" in line:
            self._traceback.clear()
            self._raising = True
        self._traceback.append(line[:300])
        failed = allocator.read(line, number, self._place, start.phase)
        if failed and len(start.failures) < MOST_OF_A_SIGN:
            where = frames.place(self._traceback)
            found = where.phase if where is not None else None
            phase = found if found is not None and _tells_more(found, start.phase) else start.phase
            start.failures.append(Failure(observations=failed, phase=phase, place=where))
        told, error = signs.read(line), _is_error(line) or (self._raising and _closes_traceback(line))
        self._raising = self._raising and not error
        if any(name == "disk full" for name, _ in told) and any("shared_memory.py" in one for one in self._traceback):
            told = [("shared memory", {})]
        if not told and not error:
            return
        source = Source(place=self._place, line=number, text=_shown(line))
        for name, values in told:
            sign = Sign(name=name, source=source, phase=start.phase, values=values)
            kept = start.signs.setdefault(sign.name, [])
            if len(kept) < MOST_OF_A_SIGN:
                kept.append(sign)
        if error and len(start.errors) < MOST_OF_A_SIGN:
            start.errors.append(_said("error", source, start.phase))


def _shown(line: str) -> str:
    """What of a line is quoted: a progress bar's last state, and not thousands of characters."""
    return line.rsplit("\r", 1)[-1][:600]


def _said(quantity: str, source: Source, phase: Phase) -> Observation:
    return Observation(quantity=quantity, value=source.text, unit="text", source=source, phase=phase)


def _tells_more(by_frames: Phase, by_markers: Phase) -> bool:
    """Functions on the stack say what a start was doing; while it serves, only which kind of step."""
    return by_markers not in _SERVING or by_frames in {"prefill", "decode"}


def _is_error(line: str) -> bool:
    """Whether a line names the exception that ended something (a warning that quotes one does not)."""
    text = line.lstrip()
    if " WARNING " in line or "Warning" in line:
        return False
    prefix = _PREFIX.match(line)
    if _RAISED.match(line, prefix.end() if prefix is not None else 0):
        return True
    head = text.split(":", 1)[0].rsplit(" ", 1)[-1]
    return (head.endswith(("Error", "Exception")) and ":" in text) or text.startswith("Fatal Python error")


def _closes_traceback(line: str) -> bool:
    """Whether a line after a traceback's frames is its exception, whatever that is called."""
    prefix = _PREFIX.match(line)
    return _CLOSING.match(line, prefix.end() if prefix is not None else 0) is not None


def _lines(stream: BinaryIO, serving: Callable[[], bool]) -> Iterator[tuple[int, str]]:
    """Numbered lines; while an engine serves, blocks without any hint of trouble are passed over."""
    cutter, calm = LineCutter(), Calm()
    number = 0
    passed = b""
    while block := stream.read(_BLOCK):
        if serving() and calm(cutter.pending[-LONGEST_TEXT:] + block):
            number, passed = number + cutter.skip(block), block
            continue
        yield from _just_passed(passed, number)
        passed = b""
        for line in cutter.feed(block):
            number += 1
            yield number, line
    yield from _just_passed(passed, number)
    for line in cutter.finish():
        yield number + 1, line


def _just_passed(block: bytes, number: int) -> Iterator[tuple[int, str]]:
    """The last whole lines of a block that was passed over, of which the last has this number."""
    lines = block[-_OVERLAP:].split(b"\n")[1:-1]
    yield from enumerate(map(clean, lines), number - len(lines) + 1)
