"""Takes a lease, renews it (`LeaseKeeper`), and ends serving when it is lost (`LeaseWatch`).

A lease is counted from before the request that took or renewed it was sent, on the clock of the boot, which also runs
while the machine sleeps. So it ends here before it ends in the store, and by `MARGIN` of its time to live earlier
still: within the margin, its holder stops.

    taken or renewed                               ends here        ends in the store
    |--- renewed every third --|---|---|---------------|---- margin ----|

Each renewal also asks if the key of the lease is as this holder wrote it; if not, the lease is lost. `succession` says how
long a holder waits before it takes a lease, since the one before it may not have noticed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, LeaseStore
from nsqd_py.lease.succession import MARGIN, Succession
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.runtime.logs.outages import OutageLog

_RENEWALS = 3
# Number of attempts in a time to live while another holder has the lease; and while its end is near.
_ATTEMPTS = 6
_ATTEMPTS_AT_END = 20
# A store that does not answer is asked again after this part of the time to live.
_RETRY = 0.1
_SHORTEST_PAUSE_S = 0.01


def boot_clock() -> float:
    """Return a steady time in seconds that counts a suspension of the machine too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _EndsFirst(BaseException):
    """The lease ends before the store has answered. No store takes it for a failure of a member."""


# ---- the lease


@dataclass(eq=False, repr=False)
class LeaseKeeper:
    """Competes for a lease until it is closed.

    _may_take   called before each attempt to take the lease, and as its holder; False leaves it to others. It may raise
                LeaseError
    _on_change  called when the lease was taken, when it has ended here, when it has another holder, and when the keeper
                has failed
    error       why no nsqd can take the lease, or why the store has not answered the last request; empty if it has
    losses      number of times that this nsqd has lost the lease
    last_loss   why it has lost it last; empty if it never has
    has_failed  True if the keeper ended without `close`, by a defect; then it holds no lease
    """

    _store: LeaseStore
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
    error: str = ""
    losses: int = 0
    last_loss: str = ""
    has_failed: bool = False

    def __post_init__(self) -> None:
        self._lasts_s = self._ttl_s * (1 - MARGIN)
        self._outage = OutageLog(self._log, self.clock)
        self._succession = Succession(self._ttl_s)
        self._is_closed = False
        self._wake = Event()
        self._renewed_s = 0.0
        self._lost = ""  # why the store says that the lease which this nsqd has is lost
        self._stranger = ""  # what was reported of a key that no nsqd has written
        self._is_waiting = False

    @property
    def is_held(self) -> bool:
        """True while the lease is held, judged by the steady clock: also right when this process was stopped."""
        return self._lease is not None and not self._lost and self.clock() < self._ends_s

    @property
    def number(self) -> int:
        """The number of the lease that this nsqd has; 0 if it has none."""
        if self._lease is not None:
            return self._lease.number
        return 0

    @property
    def remaining_s(self) -> float:
        """The time until the lease ends here; 0.0 if it is not held."""
        if self._lease is None or self._lost:
            return 0.0
        return max(0.0, self._ends_s - self.clock())

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.link(self._ended)

    def _ended(self, greenlet: gevent.Greenlet[[], None]) -> None:
        if not self._is_closed:
            self.has_failed = True
            self._lease = None
            self.other_holder = None
            self._log.error("LEASE: the greenlet that renews it has ended - %r", greenlet.exception)
            self._on_change()

    def close(self) -> None:
        """Stop, and end the lease in the store, so that another holder need not wait until it ends by itself."""
        self._is_closed = True
        self._wake.set()
        if self._greenlet is not None:
            self._greenlet.join()
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self._store.release(lease)
            except LeaseError as error:
                self._log.error("LEASE: cannot release it, it ends by itself: %s", error)

    def _run(self) -> None:
        while not self._is_closed:
            if self._take():
                self._hold()
            else:
                self._wake.wait(self._until_next_poll_s())

    # ---- while another nsqd holds it, or none

    def _until_next_poll_s(self) -> float:
        now_s = self.clock()
        if self._succession.is_overdue(now_s):
            return self._ttl_s / _ATTEMPTS_AT_END
        wait_s = self._succession.wait_s(now_s) or self._ttl_s
        return min(self._ttl_s / _ATTEMPTS, max(wait_s, _SHORTEST_PAUSE_S))

    def _take(self) -> bool:
        """Try to take the lease. Return True if that succeeded."""
        began_s = self.clock()
        try:
            state = self._store.poll(self._succession.handle)
            self._succession.saw(state, began_s, self.clock())
            lease = None
            if self._is_free(state) and self._may_take():
                began_s = self.clock()
                lease = self._acquire(state)
        except LeaseError as error:
            self._fail(str(error))
            return False
        self._answered()
        self._report_stranger(state)
        # A lease of this nsqd's last life ends by itself.
        other = None
        if state.holder != self._holder:
            other = state.holder
        has_changed = other != self.other_holder
        self.other_holder = other
        if lease is not None:
            self._begin(lease, began_s)
        if has_changed or lease is not None:
            self._on_change()
        return lease is not None

    def _is_free(self, state: LeaseState) -> bool:
        """True if no nsqd has the lease, and no earlier holder serves any more."""
        now_s = self.clock()
        is_free = self._succession.is_free(now_s)
        is_waiting = not state.handle and not is_free
        if is_waiting and not self._is_waiting:
            wait_s = self._succession.wait_s(now_s)
            self._log.info(
                "LEASE: no nsqd holds it; waiting %.1f s, as the last holder may still serve", wait_s
            )
        self._is_waiting = is_waiting
        return is_free

    def _acquire(self, state: LeaseState) -> Lease | None:
        """Take the lease, unless another holder came and went while this process was suspended. Raises LeaseError."""
        lease = self._store.acquire(self._holder, state)
        may_keep = False
        try:
            may_keep = lease is not None and self._may_take()
        finally:
            if lease is not None and not may_keep:
                self._store.release(lease)
        return lease if may_keep else None

    def _begin(self, lease: Lease, began_s: float) -> None:
        self._lost = ""
        self._lease = lease
        self._renewed_s = began_s
        self._ends_s = began_s + self._lasts_s
        self._log.info("LEASE: taken by %s", self._holder)

    def _report_stranger(self, state: LeaseState) -> None:
        """Report what no nsqd has written. If it holds the lease, it must be deleted; else the next holder replaces it."""
        if not state.stranger:
            self._stranger = ""
            return
        foreign = f"no nsqd has written {self._store.title}, {state.stranger}"
        if state.handle:
            self.error = f"no nsqd can take the lease: {foreign}; delete it: {self._store.delete_command}"
        if state.stranger != self._stranger:
            self._log.warning("LEASE: %s", self.error or f"{foreign}; the next holder replaces it")
        self._stranger = state.stranger

    # ---- while this nsqd holds it

    def _hold(self) -> None:
        """Renew the lease until it is lost or the keeper is closed."""
        assert self._lease is not None
        while not self._wake.wait(self._pause_s()) and self.is_held and self._renew(self._lease):
            pass
        if self._is_closed:
            return
        self.losses += 1
        self.last_loss = (
            self._lost or f"it could not be renewed in time: {self.error or 'this process was suspended'}"
        )
        self._succession.ended(self._lease.number, self._ends_s)
        self._wake = Event()
        self._lease = None
        self._log.error("LEASE: lost by %s: %s", self._holder, self.last_loss)
        self._on_change()

    def write_note(self, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder; return the new one. Raises LeaseLost, LeaseError."""
        if self._lease is None or self._lost:
            raise LeaseLost("the lease has ended")
        lease = self._lease
        try:
            return self._store.write_note(lease, text, revision)
        except LeaseLost as error:
            if self._lease is lease:
                self._lose(str(error))
            raise

    def _lose(self, reason: str) -> None:
        """End the lease at once, as the store has said that another nsqd can take it."""
        self._lost = reason
        self._wake.set()

    def _renew(self, lease: Lease) -> bool:
        """Renew the lease. Return False if the store says that it has ended."""
        began_s = self.clock()
        self._renewed_s = began_s
        try:
            # A request that outlives the lease must not keep this greenlet from stopping its holder.
            with gevent.Timeout(self.remaining_s, _EndsFirst()):
                self._store.renew(lease)
        except _EndsFirst:
            self._fail("the lease ends before the store has answered")
            return True
        except LeaseLost as error:
            self._lost = str(error)
            return False
        except LeaseError as error:
            self._fail(str(error))
            return True
        if self._lost:  # by what another request has found
            return False
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
        if self._outage.is_on:
            return min(self._ttl_s * _RETRY, self.remaining_s)
        next_s = self._renewed_s + self._ttl_s / _RENEWALS
        return min(max(0.0, next_s - self.clock()), self.remaining_s)


# ---- the end of serving


class LeaseWatch:
    """Calls `on_end` once when the lease has ended, whatever becomes of the keeper.

    It asks before and after each poll of the event loop, ahead of all other watchers, so that a process that was
    suspended past the end of its lease handles no input. `check` asks whenever output is about to leave, so that one
    that was suspended or busy within an iteration of the loop, as in a write to a disk that stalled, sends no answer.
    A timer wakes an idle loop.
    """

    def __init__(self, keeper: LeaseKeeper, loop: Any, log: LineWriter, on_end: Callable[[], object]) -> None:
        self._keeper = keeper
        self._number = keeper.number
        self._log = log
        self._on_end = on_end
        self._has_ended = False
        self._timer = loop.timer(0.0, ref=False)
        self._watchers = [watch(ref=False, priority=loop.MAXPRI) for watch in (loop.check, loop.prepare)]
        for watcher in self._watchers:
            watcher.start(self.check)
        self._wait()

    def _wait(self) -> None:
        self._timer.close()
        self._timer = self._timer.loop.timer(self._keeper.remaining_s, ref=False)
        call = self.check
        if self._is_held():
            call = self._wait
        self._timer.start(call)

    def _is_held(self) -> bool:
        """True while the keeper holds the lease with which this began, not a later one."""
        return self._keeper.is_held and self._keeper.number == self._number

    def check(self) -> None:
        """End serving if the lease has ended. Called before anything leaves this nsqd."""
        if self._is_held() or self._has_ended:
            return
        self._has_ended = True
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
