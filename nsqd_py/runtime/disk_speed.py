"""The speed of the disk: it decides if the event loop may use files itself, or must leave that to a thread.

A write takes the event loop a few microseconds; handing it to a thread takes a hundred. So the event loop writes as
long as the disk is fast. Nothing predicts a slow call: the first one stops the event loop for its duration. After it,
threads do the work of the disk, until no call was slow for 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from nsqd_py.pqueues.alarms import Alarms
from nsqd_py.runtime.logs.lines import LineWriter

T = TypeVar("T")

# A longer call makes the disk count as slow. Shorter ones may have waited for a processor, or for the interpreter lock.
SLOW_NS = 100_000_000
SLOW_FOR_NS = 10_000_000_000
_RECHECK_NS = 1_000_000_000


@dataclass(eq=False, repr=False)
class DiskSpeed:
    """The speed of the disk that holds the data path.

    now_ns         measures calls
    is_measured    without it, no call makes the disk count as slow
    is_slow        True if the event loop must not use the disk now
    slow_since_ns  when, by `clock`, the first of the calls was slow that lie no 10 s apart; 0 while there is none
    """

    _alarms: Alarms
    _clock: Callable[[], int]
    now_ns: Callable[[], int]
    _report: LineWriter | None = None
    is_measured: bool = True
    is_slow: bool = False
    slow_since_ns: int = 0
    _was_slow: bool = False
    _stalled: set[Hashable] = field(default_factory=set)
    _running: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._alarm = self._alarms.alarm(self._recheck)

    def note(self, took_ns: int) -> None:
        """Record a call that took `took_ns`."""
        if took_ns < SLOW_NS or not self.is_measured:
            return
        if not self._was_slow and self._report is not None:
            self._report.warning(
                "NSQ: the disk is slow, one call took %.3f s: threads write and read files until no call was slow for %d s",
                took_ns / 1e9,
                SLOW_FOR_NS // 1_000_000_000,
            )
        self.slow_since_ns = self.slow_since_ns or self._clock()
        self._was_slow = True
        self.is_slow = True
        self._alarm.set(self._clock() + SLOW_FOR_NS)

    def timed(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which uses the disk on the event loop, and record its duration."""
        began_ns = self.now_ns()
        try:
            return work()
        finally:
            self.note(self.now_ns() - began_ns)

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do `work` as `timed` does and return True; if the disk is slow, do nothing and return False."""
        if self.is_slow:
            return False
        self.timed(work)
        return True

    def begin(self, owner: object) -> None:
        """Record that a thread begins to use the disk for `owner`."""
        self._running[id(owner)] = self._clock()

    def end(self, owner: object, slowest_ns: int) -> None:
        """Record that the thread is done; its slowest call took `slowest_ns`."""
        self._running.pop(id(owner), None)
        self.note(slowest_ns)

    def stall(self, owner: Hashable) -> None:
        """Count the disk as slow until `end_stall`: a sync of `owner` takes long, and writes may wait for it."""
        self._stalled.add(owner)
        self.is_slow = True

    def end_stall(self, owner: Hashable) -> None:
        self._stalled.discard(owner)
        self.is_slow = self._was_slow or bool(self._stalled)

    def _recheck(self, now_ns: int) -> None:
        """Count the disk as fast again, unless a slow call of a thread has not returned yet."""
        if any(began_ns < now_ns - SLOW_NS for began_ns in self._running.values()):
            self._alarm.set(now_ns + _RECHECK_NS)
            return
        self._was_slow = False
        self.slow_since_ns = 0
        self.is_slow = bool(self._stalled)
        if self._report is not None:
            self._report.info("NSQ: the disk is fast again")


# For where nothing is measured. All topics without another share it, which saves 1.5 kB each.
UNMEASURED = DiskSpeed(Alarms(), int, int, is_measured=False)
