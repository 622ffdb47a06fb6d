"""Writes streams when they are due, and logs when that was."""

import asyncio
import heapq
import os
import time

from draftmark.selftest.model import Fault
from draftmark.selftest.pretence import Pretence, Truth
from draftmark.selftest.schedule import Send


class Sending:
    """One stream being written; `due` are its sends in order."""

    def __init__(self, transport: asyncio.Transport, due: tuple[Send, ...], truth: Truth, fault: Fault | None) -> None:
        self.transport, self.due, self.truth, self.fault = transport, due, truth, fault
        self.index = 0
        self.late = 0.0
        self.chunks = 0

    def next_at(self) -> float:
        """When the next bytes are due, on the monotonic clock."""
        return self.truth.received + self.due[self.index].at + self.late


class Clock:
    """Writes what is due. One timer for all streams."""

    def __init__(self, pretence: Pretence) -> None:
        self.pretence = pretence
        self._heap: list[tuple[float, int, Sending]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sending: Sending) -> None:
        """Take care of one more stream."""
        self._serial += 1
        heapq.heappush(self._heap, (sending.next_at(), self._serial, sending))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._advance)

    def _advance(self) -> None:
        while self._heap and self._heap[0][0] <= time.monotonic():
            _, serial, sending = heapq.heappop(self._heap)
            if self._write(sending):
                heapq.heappush(self._heap, (sending.next_at(), serial, sending))
        self._arm()

    def _write(self, sending: Sending) -> bool:
        """Write all that is due of one stream, as one HTTP chunk each; whether more is to come."""
        parts: list[bytes] = []
        counts: list[int] = []
        more = True
        now = time.monotonic()
        while more and sending.next_at() <= now:
            if self._strikes(sending):
                self._flush(sending, parts, counts)
                return self._fault(sending)
            send = sending.due[sending.index]
            parts.append(b"%x\r\n%b\r\n" % (len(send.data), send.data))
            if send.tokens is not None:
                counts.append(send.tokens)
                sending.chunks += 1
            sending.index += 1
            more = sending.index < len(sending.due)
        if not more:
            parts.append(b"0\r\n\r\n")
        self._flush(sending, parts, counts)
        return more

    def _flush(self, sending: Sending, parts: list[bytes], counts: list[int]) -> None:
        if parts:
            at = time.monotonic()
            sending.transport.write(b"".join(parts))
            sending.truth.sends += [(at, count) for count in counts]

    def _strikes(self, sending: Sending) -> bool:
        fault = sending.fault
        timely = fault is not None and sending.chunks == fault.chunks
        return timely and fault is not None and fault.kind in {"die", "hang", "stall", "retract", "break off"}

    def _fault(self, sending: Sending) -> bool:
        """Do what the fault says; whether the stream goes on."""
        fault, sending.fault = sending.fault, None
        assert fault is not None
        if fault.kind == "die":
            os._exit(137)
        if fault.kind == "break off":
            body = b'data: {"error": {"message": "out of memory in the forward pass", "code": 500}}\n\n'
            sending.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            return False
        if fault.kind == "hang":
            return False
        self.pretence.preempted += fault.kind == "retract"
        sending.late += fault.seconds
        return True
