"""Clients in their process: forks, its end, threads that may not block, and the log.

Connections and threads do not survive a fork: parent and child would both read and write the sockets.

Threads
_Registry._refs, _most  any thread adds and removes, each in one call of a dict; loops are over copies
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from time import monotonic
from weakref import ref

from nsqd_py.client.errors import BadClientOption, WrongPlace
from nsqd_py.runtime.logs.lines import LineWriter

EXIT_S = 5.0  # how long the end of the process waits for what is not stored yet, and for handlers


class ProcessHooks:
    """An object that must be reset in a child process, and closed when the process ends, unless that was done before."""

    def _after_fork(self) -> None:
        """Called in the child before other code runs there. Everything open belongs to the parent."""
        raise NotImplementedError

    def _begin_at_exit(self) -> None:
        """Begin to close, without waiting. Other threads still run."""

    def _at_exit(self, left_s: float) -> None:
        """Close, and wait at most `left_s`, which all objects share."""


class _Registry:
    """Weak references to objects, without callbacks such as those of a WeakSet, in which Ctrl-C would be lost."""

    def __init__(self) -> None:
        self._refs: dict[int, ref[ProcessHooks]] = {}
        self._most = 100

    def __iter__(self) -> Iterator[ProcessHooks]:
        ones = [one_ref() for one_ref in list(self._refs.values())]
        return iter([one for one in ones if one is not None])

    def add(self, one: ProcessHooks) -> None:
        self._refs[id(one)] = ref(one)
        if len(self._refs) > self._most:
            for key, one_ref in list(self._refs.items()):
                if one_ref() is None:
                    removed = self._refs.pop(key, None)
                    # Another thread has added an object with this id.
                    if removed is not None and removed is not one_ref:
                        self._refs[key] = removed
            self._most = 100 + 2 * len(self._refs)

    def discard(self, one: ProcessHooks) -> None:
        self._refs.pop(id(one), None)


_reset_in_children = _Registry()
_closed_at_exit = _Registry()
_finalizing_pid = 0


def call_after_fork(one: ProcessHooks) -> None:
    """Call its `_after_fork` in every child process while the object exists."""
    _reset_in_children.add(one)


def close_at_exit(one: ProcessHooks) -> None:
    """Close it when the process ends, unless the object is gone by then."""
    global _finalizing_pid
    _closed_at_exit.add(one)
    if "multiprocessing.util" in sys.modules and _finalizing_pid != os.getpid():
        from multiprocessing import process, util

        _finalizing_pid = os.getpid()
        # A child ends by os._exit: it runs these finalizers, but no `atexit`.
        if process.parent_process() is not None:
            util.Finalize(None, _at_exit, exitpriority=0)


def forget(one: ProcessHooks) -> None:
    """Note that it is closed."""
    _closed_at_exit.discard(one)
    _reset_in_children.discard(one)


def warn_of_dropped(name: str) -> None:
    """Say that an open client was dropped. Called by its thread."""
    warnings.warn(f"nothing refers to a {name}, which was not closed", ResourceWarning, stacklevel=2)


def _after_fork() -> None:
    for one in list(_reset_in_children):
        _closed_at_exit.discard(one)  # nothing is open here
        one._after_fork()


def _at_exit() -> None:
    """Close all objects together: however many there are, this takes little more than EXIT_S."""
    deadline_s = monotonic() + EXIT_S
    ones = list(_closed_at_exit)
    for one in ones:
        one._begin_at_exit()
    for one in ones:
        one._at_exit(max(0.0, deadline_s - monotonic()))


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def refuse_in_event_loop(method: str) -> None:
    """Raise WrongPlace in a task of an asyncio event loop, which waiting would stop.

    Cells of a notebook may wait: all of them run in a task of their kernel, one at a time. So may code next to a loop
    that a library runs in the same thread, as the sync API of Playwright does.
    """
    asyncio = sys.modules.get("asyncio")  # a process that has not imported it runs no event loop
    if asyncio is None:
        return
    try:
        is_in_task = asyncio.current_task() is not None
    except RuntimeError:  # no event loop runs here
        return
    if is_in_task and not _is_in_notebook():
        raise WrongPlace(f"{method} would stop the asyncio event loop of this thread: use nsqd_py.client.aio")


def _is_in_notebook() -> bool:
    """True in the main thread of a kernel of IPython."""
    ipython = sys.modules.get("IPython")
    is_kernel = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return is_kernel and threading.current_thread() is threading.main_thread()


def log_for(log: LineWriter | None) -> LineWriter:
    """Return the argument `log` of a client, or the logger `nsqd_py.client` for None. Raises BadClientOption."""
    if log is not None:
        if not callable(getattr(log, "warning", None)):
            raise BadClientOption(f"log must have `info`, `warning`, ... as a logging.Logger, got {log!r}")
        return log
    import logging  # slow to import

    return logging.getLogger("nsqd_py.client")
