"""The time from which no earlier holder of a lease can serve, judged by polls of the lease.

A holder serves until 1 - MARGIN of the time to live after the beginning of its last renewal, and each renewal has found
the key of the lease as the holder wrote it. So whatever becomes of the key, no holder serves any more a time to live
after a poll that has not found it. This is how long others wait, unless they know more:

- the holder has released the lease;
- they have seen the lease so near its end that its holder does not renew it any more. Then it has stopped when the
  lease would have ended by itself.

A key that was deleted or overwritten by hand, and a lease that was revoked, end a holder at its next renewal, before
another one serves. All times are in seconds of one steady clock.
"""

from __future__ import annotations

from math import inf

from nsqd_py.lease.store import LeaseState

# The part of the time to live in which the holder of a lease that cannot be renewed stops.
MARGIN = 0.2
# A holder whose lease has less left than this part of the time to live does not renew it any more. It is below MARGIN,
# as clocks do not run at the same rate.
_LAST_PART = 0.15
# A lease that was renewed lives for at least this part of the time to live, by any clock.
_RENEWED_PART = 0.9
# A holder renews its lease well before less than this part of the time to live is left.
_OVERDUE_PART = 0.5


class Succession:
    """The knowledge of one nsqd about the holders before it.

    handle  the store's name for the lease that the last poll has found; empty if it has found none
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self.handle = ""
        self._number = 0
        self._turn: int | None = None  # None before the first poll
        self._asked_s = -inf
        # The lease ends by itself at this time, or before; and its holder does not renew it any more.
        self._ends_s = inf
        self._is_ending = False
        self._free_s = inf
        self._own_until_s = -inf

    def is_free(self, now_s: float) -> bool:
        """True if no earlier holder serves."""
        return now_s >= self._free_s

    def wait_s(self, now_s: float) -> float:
        """Return the time until no earlier holder serves; infinite while the lease is held."""
        return max(0.0, self._free_s - now_s)

    def is_overdue(self, now_s: float) -> bool:
        """True if the holder should have renewed its lease."""
        return bool(self.handle) and self._ends_s - now_s < _OVERDUE_PART * self._ttl_s

    def ended(self, number: int, until_s: float) -> None:
        """Note that this nsqd itself was the last holder, with this number, and has stopped.

        until_s  the time until which no other nsqd can serve, whatever was deleted
        """
        self.handle = ""
        self._number = number
        self._turn = number
        self._free_s = -inf
        self._own_until_s = until_s

    def saw(self, state: LeaseState, asked_s: float, answered_s: float) -> None:
        """Note what a poll has found. It was asked and answered at these times."""
        if state.handle:
            self._saw_lease(state, asked_s, answered_s)
        else:
            self._saw_none(state, answered_s)
        self._turn = state.turn

    def _saw_lease(self, state: LeaseState, asked_s: float, answered_s: float) -> None:
        if (state.number, state.handle) != (self._number, self.handle):
            self._number, self.handle = state.number, state.handle
            self._ends_s = inf
            self._is_ending = False
            self._own_until_s = -inf
        elif not self._is_ending:
            self._follow(state.lives_s, asked_s, answered_s)
        self._asked_s = asked_s
        self._free_s = inf

    def _follow(self, lives_s: float | None, asked_s: float, answered_s: float) -> None:
        """Note how long the lease lives, which the last poll has found too."""
        if lives_s is None:
            self._ends_s = inf
            return
        ends_s = answered_s + lives_s
        may_be_renewed = ends_s > self._asked_s + _RENEWED_PART * self._ttl_s
        self._ends_s = ends_s if may_be_renewed else min(ends_s, self._ends_s)
        # One that has ended by itself, and holds the key still, is about to be removed by the store.
        self._is_ending = not lives_s or asked_s >= self._ends_s - _LAST_PART * self._ttl_s

    def _saw_none(self, state: LeaseState, answered_s: float) -> None:
        is_unchanged = state.turn == self._turn
        was_held = bool(self.handle)
        self.handle = ""
        if state.is_released and state.turn > self._number:
            self._free_s = -inf
        elif is_unchanged and was_held and self._is_ending:
            self._free_s = self._ends_s
        elif is_unchanged and not was_held:
            return
        elif state.turn or answered_s >= self._own_until_s:
            self._free_s = answered_s + self._ttl_s
