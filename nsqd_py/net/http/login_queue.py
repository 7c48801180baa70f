"""A queue for password checks that serves one address after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from gevent.event import Event

MOST_PER_ADDRESS = 4
MOST_ADDRESSES = 256


class TooManyLogins(Exception):
    """This address has enough passwords waiting, or too many addresses have some."""


class LoginQueue:
    """Lets one greenlet at a time check a password. The addresses take turns.

    So an address that sends wrong passwords without a pause makes another one wait for one check, not for all of
    its own. At most MOST_PER_ADDRESS checks wait for an address, and MOST_ADDRESSES addresses wait.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Event]] = OrderedDict()
        self._is_busy = False

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Wait for the turn of this address, and hold it. Raises TooManyLogins. Blocks this greenlet."""
        self._enter(address)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, address: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        waiting = self._waiting.get(address)
        if waiting is None:
            if len(self._waiting) >= MOST_ADDRESSES:
                raise TooManyLogins
            waiting = self._waiting[address] = deque()
        elif len(waiting) >= MOST_PER_ADDRESS:
            raise TooManyLogins
        my_turn = Event()
        waiting.append(my_turn)
        try:
            my_turn.wait()
        except BaseException:  # this greenlet is killed: the turn goes to the next
            if my_turn.is_set():
                self._leave()
            else:
                self._forget(address, my_turn)
            raise

    def _leave(self) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        address, waiting = self._waiting.popitem(last=False)
        waiting.popleft().set()
        if waiting:
            self._waiting[address] = waiting  # behind the other addresses

    def _forget(self, address: str, my_turn: Event) -> None:
        waiting = self._waiting[address]
        waiting.remove(my_turn)
        if not waiting:
            del self._waiting[address]
