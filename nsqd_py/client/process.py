"""What a client does when its process forks or ends, and where it may be used.

Connections and threads do not survive a fork: parent and child would both read and write the sockets.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from time import monotonic
from weakref import WeakSet

from nsqd_py.client.errors import WrongPlace


class AfterFork:
    """An object that must be reset in a child process."""

    def after_fork(self) -> None:
        """Called in the child before other code runs there. Everything open belongs to the parent."""
        raise NotImplementedError


class AtExit:
    """An object that must be closed when the process ends, unless that was done before."""

    def begin_at_exit(self) -> None:
        """Begin to close, without waiting. Other threads still run."""

    def at_exit(self, left_s: float) -> None:
        """Close, and wait at most `left_s`, which all objects share."""
        raise NotImplementedError


EXIT_S = 5.0  # how long the end of the process waits for what is not stored yet, and for handlers

_TOLD_OF_FORKS: WeakSet[AfterFork] = WeakSet()
_TOLD_OF_EXIT: WeakSet[AtExit] = WeakSet()
_finalizing_pid = 0


def tell_after_fork(one: AfterFork) -> None:
    """Call its `after_fork` in every child process while the object exists."""
    _TOLD_OF_FORKS.add(one)


def tell_at_exit(one: AtExit) -> None:
    """Close it when the process ends, unless the object is gone by then."""
    global _finalizing_pid
    _TOLD_OF_EXIT.add(one)
    if "multiprocessing.util" in sys.modules and _finalizing_pid != os.getpid():
        from multiprocessing import process, util

        _finalizing_pid = os.getpid()
        if process.parent_process() is not None:  # a child ends by os._exit: it runs these finalizers, but no `atexit`
            util.Finalize(None, _at_exit, exitpriority=0)


def forget_at_exit(one: AtExit) -> None:
    """Do not call its `at_exit`: it is closed."""
    _TOLD_OF_EXIT.discard(one)


def _after_fork() -> None:
    _TOLD_OF_EXIT.clear()  # nothing is open here
    for one in list(_TOLD_OF_FORKS):
        one.after_fork()


def _at_exit() -> None:
    """Close all objects together: however many there are, this takes little more than EXIT_S."""
    deadline_s = monotonic() + EXIT_S
    ones = list(_TOLD_OF_EXIT)
    for one in ones:
        one.begin_at_exit()
    for one in ones:
        one.at_exit(max(0.0, deadline_s - monotonic()))


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def refuse_in_event_loop(method: str) -> None:
    """Raise WrongPlace in a task of an asyncio event loop, which waiting would stop.

    Cells of a notebook may wait: all of them run in a task of their kernel, one at a time. So may code beside a loop
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
