"""Work that would block the loop, in a thread of gevent's pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_thread(threadpool: Any, work: Callable[..., None], *arguments: Any) -> None:
    """Run `work` in a thread while this greenlet waits. Raises what it raised.

    The error comes back as a value: the pool would print the traceback of one that is raised, also of one that the
    caller expects and handles.
    """
    error = threadpool.apply(_attempt, (work, arguments))
    if error is not None:
        raise error


def _attempt(work: Callable[..., None], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001 - raised again by whoever waits
        return error
    return None


class DiskThreads:
    """The threads that write to the disk, as gevent's thread pool.

    Until `serve`, work is done in place: nobody is kept waiting by it, and the pool takes 10 ms to import.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._pool: Any = None

    def serve(self) -> None:
        """From now on the loop must go on meanwhile."""
        self._is_serving = True

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns. Blocks this greenlet."""
        if not self._is_serving:
            return work(*arguments)
        if self._pool is None:
            from gevent.threadpool import ThreadPool

            self._pool = ThreadPool(self._most)
        return self._pool.apply(work, arguments)
