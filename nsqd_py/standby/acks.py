"""Publishers whose answers wait until enough standbys have their messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nsqd_py.queue.publish_buffer import Tickets


class _Held(NamedTuple):
    write: int
    deadline_ns: int
    publishers: Tickets


class HeldAnswers:
    """The publishers that wait, in the order of their writes, which have rising numbers.

    wanted  number of standbys that must have a message before its publisher gets its OK
    """

    def __init__(self, wanted: int, timeout_ns: int, clock: Callable[[], int]) -> None:
        self.wanted = wanted
        self._timeout_ns = timeout_ns
        self._clock = clock
        self._held: deque[_Held] = deque()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_deadline_ns(self) -> int | None:
        return self._held[0].deadline_ns if self._held else None

    def hold(self, write: int, publishers: Tickets) -> None:
        """Hold the answers to these publishers, whose messages are in the write of this number."""
        for publisher, _ in publishers:
            publisher.hold()
        self._held.append(_Held(write, self._clock() + self._timeout_ns, publishers))

    def acknowledged(self, writes: Iterable[int]) -> int:
        """Answer the publishers that enough standbys allow; `writes` has the last write of each standby.

        Return the number of the last write that enough standbys have.
        """
        reached = sorted(writes, reverse=True)
        last = reached[self.wanted - 1] if len(reached) >= self.wanted else 0
        self.answer(last)
        return last

    def answer(self, last_write: int) -> None:
        """Answer the publishers up to this write."""
        held = self._held
        while held and held[0].write <= last_write:
            for publisher, _ in held.popleft().publishers:
                publisher.release()

    def last_waiting(self, for_ns: int, now_ns: int) -> int:
        """Return the last write whose publishers have waited for this time; 0 if there are none."""
        last = 0
        for held in self._held:
            if held.deadline_ns - self._timeout_ns + for_ns > now_ns:
                break
            last = held.write
        return last

    def overdue(self, now_ns: int) -> list[Tickets]:
        """Remove and return the publishers that have waited too long. The caller answers and releases them."""
        found = []
        while self._held and self._held[0].deadline_ns <= now_ns:
            found.append(self._held.popleft().publishers)
        return found

    def take_all(self) -> list[Tickets]:
        """Remove and return all publishers. The caller answers and releases them."""
        found = [held.publishers for held in self._held]
        self._held.clear()
        return found
