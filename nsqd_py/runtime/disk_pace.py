"""How fast the disk is, and so whether the event loop may use files itself or must leave that to a thread.

A write takes the event loop a few microseconds; handing it to a thread takes a hundred. So the event loop writes as
long as the disk is fast. Nothing predicts a slow call: the first one stops the event loop for its duration, and is the
only one that does.

Durations do not include the time in which a thread waited for a processor. On a busy machine that wait may be longer
than the call, and it is not the disk's fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

from nsqd_py.pqueues import Alarms

if TYPE_CHECKING:
    from nsqd_py.runtime.logs import Log

# A longer call makes the disk count as slow.
SLOW_NS = 50_000_000
# The same in a thread, where a call also waits until the event loop releases the interpreter lock.
SLOW_IN_THREAD_NS = 100_000_000
# Shorter calls of the event loop are ignored. Longer ones add up, see `DiskPace.note`.
NOTED_NS = 5_000_000
_MOST_DEBT_NS = 100_000_000
_FORGIVEN_SHARE = 5
# The disk must be fast for this long before the loop uses it again; the time doubles if it is slow again soon after.
FIRST_HOLD_NS = 10_000_000_000
_LONGEST_HOLD_NS = 640_000_000_000
_RELAPSE_FACTOR = 10
_LOOK_AGAIN_NS = 1_000_000_000


class DiskPace:
    """The speed of the disk that holds the data path.

    is_slow  True if the event loop must not use the disk now, except for work that can wait, see `was_slow_lately`
    """

    __slots__ = (
        "_alarm",
        "_clock",
        "_debt_at_ns",
        "_debt_ns",
        "_ended_ns",
        "_hold_ns",
        "_is_held",
        "_report",
        "_running",
        "_slow_at_ns",
        "_stalled",
        "_waits",
        "is_measured",
        "is_slow",
    )

    def __init__(self, alarms: Alarms, clock: Callable[[], int], report: Log | None = None, *, is_measured: bool = True) -> None:
        """Make a pace; without `is_measured`, no call makes the disk count as slow."""
        self.is_slow = False
        self.is_measured = is_measured
        self._waits = ProcessorWaits()
        self._clock = clock
        self._report = report
        self._alarm = alarms.alarm(self._look)
        self._hold_ns = FIRST_HOLD_NS
        self._is_held = False
        self._ended_ns = self._slow_at_ns = -(1 << 62)
        self._debt_ns = 0
        self._debt_at_ns = 0
        self._stalled: set[Hashable] = set()
        self._running: dict[int, int] = {}

    # ---- what was measured

    def note(self, took_ns: int) -> None:
        """Record a call of the event loop that took `took_ns`, NOTED_NS or more.

        Shorter calls add up: the disk is slow when the event loop spends a fifth of its time in them.
        """
        took_ns -= self._waits.since_last()
        if took_ns < NOTED_NS or not self.is_measured:
            return
        now_ns = self._clock()
        forgiven_ns = (now_ns - self._debt_at_ns) // _FORGIVEN_SHARE
        self._debt_ns = max(0, self._debt_ns - forgiven_ns) + took_ns
        self._debt_at_ns = now_ns
        if took_ns >= SLOW_NS or self._debt_ns >= _MOST_DEBT_NS:
            self._hold(took_ns, now_ns)

    def sample(self) -> None:
        """Measure the waits for a processor; call this a few times a second so that `note` can subtract them."""
        self._waits.since_last()

    def timed(self, work: Callable[[], object]) -> None:
        """Do `work` on the event loop and record its duration. Raises what it raises."""
        began_ns = monotonic_ns()
        try:
            work()
        finally:
            took_ns = monotonic_ns() - began_ns
            if took_ns >= NOTED_NS:
                self.note(took_ns)

    def attempt(self, work: Callable[[], object], *, can_wait: bool = False) -> bool:
        """Do `work` as `timed` does and return True; if the disk is slow, do nothing and return False.

        Work that can wait needs only a disk that was not slow lately, see `was_slow_lately`.
        """
        if self.was_slow_lately if can_wait else self.is_slow:
            return False
        self.timed(work)
        return True

    def begin(self, owner: object) -> None:
        """Record that a thread begins to use the disk for `owner`."""
        self._running[id(owner)] = self._clock()

    def end(self, owner: object, slowest_ns: int) -> None:
        """Record that the thread is done; its slowest call took `slowest_ns`."""
        self._running.pop(id(owner), None)
        if slowest_ns >= SLOW_IN_THREAD_NS and self.is_measured:
            self._hold(slowest_ns, self._clock())

    def stall(self, owner: Hashable) -> None:
        """Count the disk as slow until `end_stall`: a sync of `owner` takes long, and writes may wait for it."""
        self._stalled.add(owner)
        self.is_slow = True

    def end_stall(self, owner: Hashable) -> None:
        self._stalled.discard(owner)
        self.is_slow = self._is_held or bool(self._stalled)

    # ---- slow, and quick again

    @property
    def was_slow_lately(self) -> bool:
        """True if a call was slow less than FIRST_HOLD_NS ago. Then work that can wait, such as removing files, waits.

        It must not wait as long as writes do after many relapses, because the disk would fill up. It makes few calls.
        """
        if not self.is_slow:
            return False
        now_ns = self._clock()
        return bool(self._stalled) or self._has_overdue(now_ns) or now_ns < self._slow_at_ns + FIRST_HOLD_NS

    def _has_overdue(self, now_ns: int) -> bool:
        """True if a call in a thread is slow that has not returned yet."""
        return any(began_ns < now_ns - SLOW_IN_THREAD_NS for began_ns in self._running.values())

    def _hold(self, took_ns: int, now_ns: int) -> None:
        if not self._is_held:
            is_relapse = now_ns < self._ended_ns + _RELAPSE_FACTOR * self._hold_ns
            self._hold_ns = min(2 * self._hold_ns, _LONGEST_HOLD_NS) if is_relapse else FIRST_HOLD_NS
            self._is_held = self.is_slow = True
            if self._report is not None:
                self._report.warning(
                    "NSQ: the disk is slow, it took %.3f s for one call: threads write and read files until it has "
                    "been quick for %d s",
                    took_ns / 1e9,
                    self._hold_ns // 1_000_000_000,
                )
        self._debt_ns = 0
        self._slow_at_ns = now_ns
        self._alarm.set(now_ns + self._hold_ns)

    def _look(self, now_ns: int) -> None:
        """Count the disk as fast again, unless a call has not returned yet."""
        if self._has_overdue(now_ns):
            self._alarm.set(now_ns + _LOOK_AGAIN_NS)
            return
        self._is_held = False
        self._ended_ns = now_ns
        self.is_slow = bool(self._stalled)
        if self._report is not None:
            self._report.info("NSQ: the disk is quick again")


_SCHEDSTAT = "/proc/thread-self/schedstat"  # ns on a processor, ns of waiting for one, times
_MOST_BYTES = 64


class CallTimer:
    """Measures calls in the thread that makes them: `with timer: call()`.

    slowest_ns  duration of the slowest call
    """

    __slots__ = ("_began_ns", "_waited_ns", "slowest_ns")

    def __init__(self) -> None:
        self.slowest_ns = 0
        self._began_ns = self._waited_ns = 0

    def __enter__(self) -> None:
        self._waited_ns = _waited_ns()
        self._began_ns = monotonic_ns()

    def __exit__(self, *_: object) -> None:
        took_ns = monotonic_ns() - self._began_ns - (_waited_ns() - self._waited_ns)
        self.slowest_ns = max(self.slowest_ns, took_ns)


def _waited_ns() -> int:
    """Return how long this thread has waited for a processor; 0 if the system does not say. It takes 10 us."""
    try:
        return _parse(Path(_SCHEDSTAT).read_bytes())
    except OSError:
        return 0


def _parse(data: bytes) -> int:
    words = data.split()
    return int(words[1]) if len(words) > 1 else 0


class ProcessorWaits:
    """The waits of one thread for a processor. For calls that are too frequent for a `CallTimer`."""

    __slots__ = ("_descriptor", "_last_ns")

    def __init__(self) -> None:
        self._descriptor = -1
        self._last_ns = 0

    def since_last(self) -> int:
        """Return the wait in ns since the last call by the same thread; 0 if the system does not say."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            now_ns = _parse(os.pread(self._descriptor, _MOST_BYTES, 0))  # 0.5 us
        except OSError:
            return 0
        waited_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return waited_ns

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


# The pace where nothing is measured. All topics without another share it, which saves 1.5 kB each.
UNMEASURED = DiskPace(Alarms(), monotonic_ns, is_measured=False)
