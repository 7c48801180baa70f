"""The publishers that wait for the store."""

from __future__ import annotations

import errno

from nsqd_py.broker.answer_gate import AnswerGate
from nsqd_py.broker.broker import Broker
from nsqd_py.objects.calls import Objects
from nsqd_py.queue.publish_buffer import Tickets


class WaitingPublishers:
    """The publishers whose messages the store does not have yet, with `--store-acks=1`.

    Each write to a log has a number, beginning at 1, and its publishers wait for the round that has it.
    """

    def __init__(self, broker: Broker, objects: Objects) -> None:
        self._objects = objects
        self._clock = broker.clock
        self._gate = AnswerGate(timeout_ns=broker.options.store_timeout_ns)
        self._writes = 0
        self._has_base = False
        self._alarm = broker.alarms.alarm(self._refuse_overdue)

    def add(self, publishers: Tickets) -> None:
        """Count a write to a log, and hold its publishers until the store has it."""
        self._writes += 1
        if not publishers:
            return
        self._gate.hold(self._writes, publishers, self._clock())
        deadline_ns = self._gate.next_deadline_ns
        if deadline_ns is not None:
            self._alarm.set_no_later(deadline_ns)

    def last_write(self) -> int:
        return self._writes

    def count(self) -> int:
        return self._gate.publisher_count

    def stored(self, write: int) -> None:
        """Answer the publishers up to this write; the first call says that the store has a base."""
        self._has_base = True
        self._gate.answer(write)
        self._alarm.set(self._gate.next_deadline_ns)

    def _refuse_overdue(self, now_ns: int) -> None:
        reason = f"the store {self._objects!r} did not take a message in time (--store-timeout)"
        if not self._has_base:
            reason += ": it is still getting what this nsqd had at its start"
        self._gate.refuse_overdue(now_ns, TimeoutError(errno.ETIMEDOUT, reason))
        self._alarm.set(self._gate.next_deadline_ns)

    def has_up_to(self, write: int) -> bool:
        """True if a publisher waits for this write, or for one before it."""
        first = self._gate.first_write
        return first is not None and first <= write

    def refuse_all(self, reason: str) -> None:
        """Refuse all publishers that wait."""
        self._gate.answer_all(lambda _write: OSError(errno.EIO, reason))
        self._alarm.set(None)
