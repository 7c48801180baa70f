"""The gate of an answer: publishers wait at it until enough copies have their messages.

Each part of nsqd that must have a message before its publisher gets OK has a gate: the sync of each log, with
`--sync-every=1`, and the standbys, with `--standby-acks`. A publisher may wait at several gates; its answer leaves when the
last one has released it. If any of them refuses it, the publisher gets that error instead of its OK.

A gate numbers nothing itself: who holds publishers says which write they wait for, in rising numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nsqd_py.queue.publish_buffer import Tickets, hold, release


class _Held(NamedTuple):
    write: int
    deadline_ns: int
    publishers: Tickets


class AnswerGate:
    """The publishers that wait for one part, in the order of their writes. It is False if there are none.

    needed           number of copies that must have a message
    publisher_count  number of publishers that wait
    """

    __slots__ = ("_held", "_timeout_ns", "needed", "publisher_count")

    def __init__(self, needed: int = 1, timeout_ns: int = 0) -> None:
        self.needed = needed
        self.publisher_count = 0
        self._timeout_ns = timeout_ns
        self._held: deque[_Held] = deque()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_deadline_ns(self) -> int | None:
        if self._held:
            return self._held[0].deadline_ns
        return None

    @property
    def first_write(self) -> int | None:
        """The number of the oldest write that publishers wait for."""
        if self._held:
            return self._held[0].write
        return None

    def hold(self, write: int, publishers: Tickets, now_ns: int = 0) -> None:
        """Hold the answers to these publishers, whose messages are in the write of this number."""
        hold(publishers)
        self.publisher_count += len(publishers)
        self._held.append(_Held(write, now_ns + self._timeout_ns, publishers))

    # ---- releasing

    def confirm(self, writes: Iterable[int]) -> int:
        """Answer the publishers that enough copies allow; `writes` has the last write of each copy.

        Return the number of the last write that enough copies have.
        """
        reached = sorted(writes, reverse=True)
        last = 0
        if len(reached) >= self.needed:
            last = reached[self.needed - 1]
        self.answer(last)
        return last

    def answer(self, last_write: int) -> None:
        """Answer the publishers up to this write."""
        while self._held and self._held[0].write <= last_write:
            self._release_first(None)

    def answer_all(self, failure_of: Callable[[int], OSError | None]) -> None:
        """Answer all publishers. Those of a write for whose number `failure_of` returns an error get that error."""
        while self._held:
            # Before they are forgotten: if it raises, they still wait, and can be refused.
            failure = failure_of(self._held[0].write)
            self._release_first(failure)

    def refuse_overdue(self, now_ns: int, error: OSError) -> None:
        """Refuse the publishers that have waited too long."""
        while self._held and self._held[0].deadline_ns <= now_ns:
            self._release_first(error)

    def _release_first(self, failure: OSError | None) -> None:
        publishers = self._held.popleft().publishers
        self.publisher_count -= len(publishers)
        if failure is not None:
            for publisher, ticket in publishers:
                publisher.publish_failed(ticket, failure)
        release(publishers)

    # ---- how long they have waited

    def last_waiting(self, for_ns: int, now_ns: int) -> int:
        """Return the last write whose publishers have waited for this time; 0 if there are none."""
        last = 0
        for held in self._held:
            if held.deadline_ns - self._timeout_ns + for_ns > now_ns:
                break
            last = held.write
        return last
