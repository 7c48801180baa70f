"""Calls to the store, each of which is repeated until the store answers."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import gevent

from nsqd_py.objects.calls import Objects, StoreError, StoreRefused
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread
from nsqd_py.store.ownership import Owner

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# A request with little to send hangs when it takes longer.
_HANGS_S = 5.0


class Outage(NamedTuple):
    """The time since when the store does not take what is put, and the reason."""

    since_s: float
    reason: str


class StoreCalls:
    """Calls the store in threads, for as long as it takes.

    mended_count  damaged heads that the owner has written again
    """

    def __init__(self, objects: Objects, owner: Owner, threadpool: Any, log: Log) -> None:
        self._objects = objects
        self._owner = owner
        self.mended_count = 0
        self._threadpool = threadpool
        self._log = log
        self._outage: Outage | None = None
        self._asked_s = 0.0  # when the request began that a round waits for

    @property
    def outage(self) -> Outage | None:
        """None while the store takes what is put. An outage begins with the first request that it does not answer."""
        hanging_s = 0.0
        if self._asked_s:
            hanging_s = monotonic() - self._asked_s
        if self._outage is None and hanging_s >= _HANGS_S:
            return Outage(self._asked_s, f"it has not answered a request for {hanging_s:.0f} s")
        return self._outage

    def ask(self, work: Callable[[], object]) -> None:
        """Do as `call`, with little to send: if that takes long, the store hangs."""
        self._asked_s = monotonic()
        try:
            self.call(work)
        finally:
            self._asked_s = 0.0

    def call(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something in the store, in a thread; repeat it until the store answers. Raises Superseded and OSError."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                in_thread(self._threadpool, work, *arguments)
            except (StoreError, StoreRefused) as error:
                self._note_outage(error)
                gevent.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._note_answer()
                self._log_mended()
                return

    def _log_mended(self) -> None:
        while self._owner.mended:
            self.mended_count += 1
            self._log.error("STORE: %s", self._owner.mended.popleft())

    def _note_outage(self, error: Exception) -> None:
        if self._outage is None:
            self._log.error("STORE: %r takes nothing - %s; trying again", self._objects, error)
            self._outage = Outage(self._asked_s or monotonic(), str(error))
        self._outage = self._outage._replace(reason=str(error))

    def _note_answer(self) -> None:
        if self._outage is not None:
            away_s = monotonic() - self._outage.since_s
            self._outage = None
            self._log.info("STORE: %r answers again, after %.1f s", self._objects, away_s)
