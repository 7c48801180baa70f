"""Long work of a greenlet, in slices."""

from __future__ import annotations

import time

import gevent

SLICE_S = 0.001
# Not 0: gevent runs up to 50 callbacks before it polls, and each `sleep(0)` is one. In slices of 2 ms that kept
# sockets waiting for 100 ms; a pause that is a timer, for 2.6 ms.
PAUSE_S = 0.001
# For work that somebody waits for: one round of the loop, in which all that is ready is served once.
ONE_ROUND_S = 0.00001


class Pace:
    """Says when a greenlet has worked for a slice, and lets the loop serve all others then."""

    __slots__ = ("_ends_s", "_pause_s")

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._ends_s = time.perf_counter() + SLICE_S

    def rest_if_due(self) -> None:
        """Call it often: about every 100 us of work."""
        if time.perf_counter() >= self._ends_s:
            gevent.sleep(self._pause_s)
            self._ends_s = time.perf_counter() + SLICE_S
