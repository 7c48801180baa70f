"""Calls that run at the same time: all of them end, or the test fails and says which do not.

gevent's `joinall(…, timeout)` counts from when the loop looked at the clock last. In a test that can be minutes ago, as
tests wait for each other: the time was over at once, before any greenlet had run. `gevent.Timeout` asks the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import gevent

DEADLINE_S = 60.0  # of what takes a second on an idle machine

T = TypeVar("T")


def run_in_greenlets(calls: Sequence[Callable[[], T]], deadline_s: float = DEADLINE_S) -> list[T]:
    """Return the results, when all have ended. Raises the first error; what still runs after it is ended."""
    return join_greenlets([gevent.spawn(call) for call in calls], deadline_s)


def join_greenlets(greenlets: Sequence[Any], deadline_s: float = DEADLINE_S) -> list[Any]:
    """Return the results of greenlets, as `run_in_greenlets`."""
    try:
        with gevent.Timeout(deadline_s, False):  # type: ignore[arg-type]
            gevent.joinall(greenlets, raise_error=True)
        _check([each for each in greenlets if not each.ready()], len(greenlets), deadline_s)
    finally:
        gevent.killall(greenlets, block=False)
    return [each.value for each in greenlets]


def run_in_threads(calls: Sequence[Callable[[], T]], deadline_s: float = DEADLINE_S) -> list[T]:
    """Return the results, when all have ended. Raises the first error; threads that still run are not waited for."""
    pool = ThreadPoolExecutor(len(calls))
    futures = [pool.submit(call) for call in calls]
    pool.shutdown(wait=False)
    done, running = wait(futures, deadline_s, FIRST_EXCEPTION)
    for future in done:
        future.result()
    _check(running, len(futures), deadline_s)
    return [future.result() for future in futures]


def join_thread(thread: threading.Thread, deadline_s: float = DEADLINE_S) -> None:
    """Return when the thread has ended."""
    thread.join(deadline_s)
    assert not thread.is_alive(), f"waited {deadline_s:g} s for the end of {thread.name}"


def wait_for_event(event: Any, what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return when an event of threads or of greenlets is set. A gate of a fake does not open by itself."""
    assert event.wait(deadline_s), f"waited {deadline_s:g} s for {what}"


def _check(running: Any, count: int, deadline_s: float) -> None:
    assert not running, f"waited {deadline_s:g} s for {count} calls, {len(running)} still run: {running}"
