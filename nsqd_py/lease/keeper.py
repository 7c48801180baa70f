"""Takes a lease, renews it, and ends serving when it is lost.

A lease is counted from before the request that took or renewed it was sent, on the clock of the boot, which also runs
while the machine sleeps. So it ends here before it ends in the store, and by `MARGIN` of its time to live earlier
still: within the margin, its holder stops.

    taken or renewed                               ends here        ends in the store
    |--- renewed every third --|---|---|---------------|---- margin ----|
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.interfaces import LineWriter
from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost
from nsqd_py.runtime.outages import OutageLog


def boot_clock() -> float:
    """Return a steady time in seconds that counts a suspension of the machine too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# The part of the time to live in which the holder of a lease that cannot be renewed stops.
MARGIN = 0.2
_RENEWALS = 3
# Number of attempts in a time to live while another holder has the lease.
_ATTEMPTS = 6
# A store that does not answer is asked again after this part of the time to live.
_RETRY = 0.1


class _EndsFirst(BaseException):
    """The lease ends before the store has answered. No store takes it for a failure of a member."""


@dataclass(eq=False, repr=False)
class LeaseKeeper:
    """Competes for a lease until it is closed.

    _may_take   called before each attempt to take the lease, and as its holder; False leaves it to others. It may raise
                LeaseError.
    _on_change  called when the lease was taken, when it has ended here, when it has another holder, and when the keeper
                has failed
    """

    _store: EtcdStore
    _holder: str
    _ttl_s: float
    _log: LineWriter
    _may_take: Callable[[], bool]
    _on_change: Callable[[], object]
    clock: Callable[[], float] = boot_clock
    _lease: Lease | None = None
    _ends_s: float = 0.0
    _greenlet: gevent.Greenlet[[], None] | None = None
    other_holder: str | None = None
    error: str = ""  # why the store has not answered the last request; empty if it has
    has_failed: bool = False  # True if it ended without `close`, by a defect; then it holds no lease

    def __post_init__(self) -> None:
        self._lasts_s = self._ttl_s * (1 - MARGIN)
        self._outage = OutageLog(self._log, self.clock)
        self._closed = Event()

    @property
    def is_held(self) -> bool:
        """True while the lease is held, judged by the steady clock: also right when this process was stopped."""
        return self._lease is not None and self.clock() < self._ends_s

    @property
    def remaining_s(self) -> float:
        """The time until the lease ends here; 0.0 if it is not held."""
        return max(0.0, self._ends_s - self.clock()) if self._lease is not None else 0.0

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.link(self._ended)

    def _ended(self, greenlet: gevent.Greenlet[[], None]) -> None:
        if not self._closed.is_set():
            self.has_failed = True
            self._lease = self.other_holder = None
            self._log.error("LEASE: the greenlet that renews it has ended - %r", greenlet.exception)
            self._on_change()

    def close(self) -> None:
        """Stop, and end the lease in the store, so that another holder need not wait until it ends by itself."""
        self._closed.set()
        if self._greenlet is not None:
            self._greenlet.join()
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self._store.release(lease)
            except LeaseError as error:
                self._log.error("LEASE: cannot release it, it ends by itself: %s", error)

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._take():
                self._hold()
            else:
                self._closed.wait(self._ttl_s / _ATTEMPTS)

    def _take(self) -> bool:
        """Try to take the lease. Return True if that succeeded."""
        began_s = self.clock()
        try:
            holder = self._store.holder()
            lease = None
            if holder is None and self._may_take():
                began_s = self.clock()
                lease = self._acquire()
        except LeaseError as error:
            self._fail(str(error))
            return False
        self._answered()
        other = holder if holder != self._holder else None  # a lease of this nsqd's last life ends by itself
        has_changed = other != self.other_holder
        self.other_holder = other
        if lease is not None:
            self._lease = lease
            self._ends_s = began_s + self._lasts_s
            self._log.info("LEASE: taken by %s", self._holder)
        if has_changed or lease is not None:
            self._on_change()
        return lease is not None

    def _acquire(self) -> Lease | None:
        """Take the lease, unless another holder came and went while this process was suspended. Raises LeaseError."""
        lease = self._store.acquire(self._holder)
        may_keep = False
        try:
            may_keep = lease is not None and self._may_take()
        finally:
            if lease is not None and not may_keep:
                self._store.release(lease)
        return lease if may_keep else None

    def _hold(self) -> None:
        """Renew the lease until it is lost or the keeper is closed."""
        assert self._lease is not None
        while not self._closed.wait(self._pause_s()) and self.is_held and self._renew(self._lease):
            pass
        if not self._closed.is_set():
            self._lease = None
            self._log.error("LEASE: lost by %s", self._holder)
            self._on_change()

    def write_note(self, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder; return the new one. Raises LeaseLost, LeaseError."""
        if self._lease is None:
            raise LeaseLost("the lease has ended")
        return self._store.write_note(self._lease, text, revision)

    def _renew(self, lease: Lease) -> bool:
        """Renew the lease. Return False if the store says that it has ended."""
        began_s = self.clock()
        try:
            # A request that outlives the lease must not keep this greenlet from stopping its holder.
            with gevent.Timeout(self.remaining_s, _EndsFirst()):
                self._store.renew(lease)
        except _EndsFirst:
            self._fail("the lease ends before the store has answered")
            return True
        except LeaseLost as error:
            self._log.error("LEASE: %s", error)
            return False
        except LeaseError as error:
            self._fail(str(error))
            return True
        self._answered()
        self._ends_s = began_s + self._lasts_s
        return True

    def _fail(self, reason: str) -> None:
        self.error = reason
        self._outage.report("LEASE: %s", reason)

    def _answered(self) -> None:
        self.error = ""
        self._outage.end("LEASE: the store answers again")

    def _pause_s(self) -> float:
        """Return the time until the next renewal: soon, if the last one failed; never later than the lease ends."""
        return min(self._ttl_s * (_RETRY if self._outage.is_on else 1 / _RENEWALS), self.remaining_s)


class LeaseWatch:
    """Calls `on_end` once when the lease has ended, whatever becomes of the keeper.

    It asks before and after each poll of the event loop, ahead of all other watchers: a process that was suspended or
    busy past the end of its lease handles no input and sends no output before. A timer wakes an idle loop.
    """

    def __init__(self, keeper: LeaseKeeper, loop: Any, log: LineWriter, on_end: Callable[[], object]) -> None:
        self._keeper = keeper
        self._log = log
        self._on_end = on_end
        self._timer = loop.timer(0.0, ref=False)
        self._watchers = [watch(ref=False, priority=loop.MAXPRI) for watch in (loop.check, loop.prepare)]
        for watcher in self._watchers:
            watcher.start(self._check)
        self._wait()

    def _wait(self) -> None:
        self._timer.close()
        self._timer = self._timer.loop.timer(self._keeper.remaining_s, ref=False)
        self._timer.start(self._wait if self._keeper.is_held else self._check)

    def _check(self) -> None:
        if self._keeper.is_held:
            return
        self.close()
        try:
            self._on_end()
        except BaseException as error:  # noqa: BLE001 - whatever it is, serving must end
            # What was acknowledged is written. The end of the process closes the connections that may be left.
            self._log.error("LEASE: failed to end serving, exiting - %r", error)
            os._exit(1)

    def close(self) -> None:
        for watcher in (self._timer, *self._watchers):
            watcher.close()
