"""Work that would block the loop, in a thread of gevent's pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_thread(threadpool: Any, work: Callable[..., None], *arguments: Any) -> None:
    """Run `work` in a thread while this greenlet waits. Raises the OSError that it raised.

    The error comes back as a value: the pool would print the traceback of one that is raised.
    """
    error = threadpool.apply(_attempt, (work, arguments))
    if error is not None:
        raise error


def _attempt(work: Callable[..., None], arguments: tuple[Any, ...]) -> OSError | None:
    try:
        work(*arguments)
    except OSError as error:
        return error
    return None
