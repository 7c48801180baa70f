"""Blocking work, done in the threads of gevent's pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_thread(threadpool: Any, work: Callable[..., None], *arguments: Any) -> None:
    """Run `work` in a thread while this greenlet waits. Raises the error of `work`.

    The thread returns the error as a value: the pool prints the traceback of an error that is raised, even if the
    caller handles it.
    """
    error = threadpool.apply(_attempt, (work, arguments))
    if error is not None:
        raise error


def _attempt(work: Callable[..., None], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001 - the waiting greenlet raises it
        return error
    return None


class DiskThreads:
    """The threads that write to the disk, as gevent's thread pool.

    Before `serve`, work is done in this thread: no client waits for it, and the pool takes 10 ms to import.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._pool: Any = None

    def serve(self) -> None:
        """Use threads from now on, so that the loop continues."""
        self._is_serving = True

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns. Blocks this greenlet."""
        if not self._is_serving:
            return work(*arguments)
        if self._pool is None:
            from gevent.threadpool import ThreadPool

            self._pool = ThreadPool(self._most)
        return self._pool.apply(work, arguments)
