"""The primitives of the blocking clients, for threads, and waiting that Ctrl-C cannot break.

`nsqd_py.client.gevent` has the same primitives for greenlets.

An exception of a signal handler, such as Ctrl-C, comes between any two steps of the main thread's Python code.
`threading.Condition` and `threading.Event` are written in Python and hold a lock that other threads need: at the wrong
step it stays locked.
"""

from __future__ import annotations

import _thread
import math
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from time import monotonic
from typing import Any, Generic, TypeVar

from nsqd_py.client.process import refuse_in_event_loop

# Connections that one client opens at a time, each in a thread: an nsqlookupd may name thousands of nsqds that do not answer.
MOST_DIALS = 64

T = TypeVar("T")
Item = TypeVar("Item")

# gevent ends a wait with LoopExit if there is no timer, nor anything else: a lost Ctrl-C may have ended all I/O.
_LONGEST_WAIT_S = 10.0
_POLL_S = 1.0  # a child process does not have the thread that would wake its threads
# A signal that comes just before the main thread begins to wait for a lock does not end that wait: its handler runs after it.
_SIGNALS_S = 0.5


class Poller:
    """Waits for descriptors. All methods but `wake` belong to one thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        # A thread that sends while another one closes could write to the next socket that gets this descriptor. A signal
        # handler may come between two steps of `wake`, and call it again.
        self._is_sending = threading.RLock()
        self._pid = os.getpid()

    def fileno(self) -> int:
        """Return the descriptor that `wake` makes readable."""
        return self._reader.fileno()

    def wait(self, descriptors: Collection[int], timeout_s: float) -> set[int]:
        """Return those that can be read, as soon as there are any; none after the time-out, or when woken."""
        poll = select.poll()
        waker = self.fileno()
        for descriptor in (waker, *descriptors):
            poll.register(descriptor, select.POLLIN)
        found = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        if waker in found:
            found.discard(waker)
            with suppress(BlockingIOError):
                self._reader.recv(4096)  # more than the socket holds
        return found

    def wake(self) -> None:
        """End a `wait`, or the next one. Any thread may call this, also after `close`."""
        with self._is_sending, suppress(OSError):  # BlockingIOError: it is readable already
            self._writer.send(b"\0")

    def close(self) -> None:
        # In a forked child, the lock may belong to a thread of the parent, which is not there to release it.
        with self._is_sending if self._pid == os.getpid() else nullcontext():
            self._reader.close()
            self._writer.close()


class Backend:
    """Threads, and what they wait with. What is imported is looked up at each call: gevent may patch it later.

    yield_if_due  lets others run from time to time; None if the interpreter changes threads by itself
    """

    socket: Any = socket
    select: Any = select
    yield_if_due: Callable[[], None] | None = None

    def make_lock(self) -> Any:
        return threading.Lock()

    def make_answer_lock(self) -> AbstractContextManager[object]:
        """Return the lock of everything that those who answer messages share with the I/O thread.

        If gevent patches threads after this, all greenlets count as one thread, which is enough: nothing that it guards waits.
        """
        return threading.RLock()

    def make_poller(self) -> Any:
        return Poller()

    def current(self) -> object:
        return threading.get_ident()

    def spawn(self, name: str, call: Callable[..., object], *args: object) -> Any:
        """Run the call next to this one. Raises RuntimeError if the system has no more threads."""
        # A signal handler may interrupt the start of a `threading.Thread` at any step: another thread starts it.
        return _thread.start_new_thread(_start_thread, (name, call, args))

    def kill(self, task: Any) -> None:
        """End it, if that is possible: a thread goes on."""

    def refuse_to_wait(self, method: str) -> None:
        """Raise WrongPlace where a call must not wait."""
        refuse_in_event_loop(method)

    def create_connection(
        self, address: tuple[str | None, int | None], timeout_s: float | None, source: Any = None
    ) -> Any:
        """Return a socket that is connected to (host, port), from (host, port) `source` if it is given. Raises OSError."""
        return self.socket.create_connection(address, timeout_s, source)

    def ssl_context_class(self) -> Any:
        import ssl  # takes 20 ms: only for nsqlookupds with https

        return ssl.SSLContext

    def after_fork(self) -> None:
        """Called in a child process before anything else."""

    @property
    def is_usable(self) -> bool:
        """False where its clients cannot work any more."""
        return True


def _start_thread(name: str, call: Callable[..., object], args: Iterable[object]) -> None:
    try:
        threading.Thread(target=call, args=args, name=name, daemon=True).start()
    except RuntimeError:  # the system has no more threads: this one does it
        call(*args)


THREADS = Backend()


class WorkerThread(Generic[T]):
    """Runs `call` next to a thread that must not wait, and wakes its poller when the call has ended.

    `drop` is called with the result of a call that was killed; perhaps twice.
    """

    def __init__(
        self, backend: Backend, poller: Any, call: Callable[[], T], drop: Callable[[T], object] | None = None
    ) -> None:
        self._backend = backend
        self._poller = poller
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self._drop = drop
        self._is_killed = False
        self.is_done = False
        self._task = backend.spawn("nsqd-py", self._run)

    def result(self) -> T:
        """Return or raise the result of the call, which is done."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def kill(self) -> None:
        """Drop the result, now or when the call has ended, and end the call if that is possible."""
        self._is_killed = True
        if self.is_done:
            self._end()
        self._backend.kill(self._task)

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self.is_done = True
            self._end()
            self._poller.wake()

    def _end(self) -> None:
        if self._is_killed and self._drop is not None and self._result is not None:
            self._drop(self._result)


class Waiters:
    """Threads that wait, each for a lock that no other thread takes. Those who wake them hold no lock."""

    __slots__ = ("_locks", "_make_lock")

    def __init__(self, make_lock: Callable[[], Any]) -> None:
        self._make_lock = make_lock
        self._locks: list[Any] = []  # an empty deque takes 760 bytes, and nsq-to-file has four for each topic

    def wait(self, is_over: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Return True when woken, or at once if `is_over` returns true; False after the time-out."""
        lock = self._make_lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            # `is_over` after the append: the thread that makes it true wakes this one from then on.
            if timeout_s is None:
                limit_s = math.inf
            else:
                limit_s = max(0.0, timeout_s)
            return bool(is_over()) or _acquire(lock, limit_s)
        finally:
            # Checked first: an error that is handled here would be the context of Ctrl-C.
            if lock in self._locks:
                with suppress(ValueError):  # it is being woken
                    self._locks.remove(lock)

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return True as soon as `is_true()`, or False after the time-out. What makes it true calls `wake_all`."""
        if timeout_s is None:
            ends_s = math.inf
        else:
            ends_s = monotonic() + timeout_s
        while not is_true():
            left_s = ends_s - monotonic()
            if left_s <= 0:
                return False
            self.wait(is_true, min(left_s, _POLL_S))
        return True

    def wake(self) -> bool:
        """Wake the thread that has waited longest. Return False if none waits."""
        if not self._locks:
            return False
        with suppress(IndexError):  # another thread was faster
            self._locks.pop(0).release()
        return True

    def wake_all(self) -> None:
        while self._locks:
            self.wake()


def _acquire(lock: Any, timeout_s: float) -> bool:
    """Return True as soon as the lock is taken, False after the time-out. Handlers of signals run in the meantime.

    gevent's loop sees signals by itself, so that greenlets wait in one piece.
    """
    is_of_greenlets = type(lock).__module__ != _thread.__name__
    if is_of_greenlets or threading.current_thread() is not threading.main_thread():
        return bool(lock.acquire(timeout=-1 if timeout_s == math.inf else timeout_s))
    ends_s = monotonic() + timeout_s
    while not lock.acquire(timeout=min(timeout_s, _SIGNALS_S)):
        timeout_s = ends_s - monotonic()
        if timeout_s <= 0:
            return False
    return True


class Latch:
    """An event that happens once."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self, make_lock: Callable[[], Any]) -> None:
        self._waiters = Waiters(make_lock)
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        self._waiters.wake_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once it has happened, False after the time-out."""
        self._waiters.wait(lambda: self.is_set, timeout_s)
        return self.is_set


class WorkQueue(Generic[Item]):
    """Items for idle workers. `take` waits for one.

    Many items wake one worker, which wakes the next one before it begins if there is more to do. So handlers that never
    wait do all work in one worker, and handlers that wait use all of them.
    """

    def __init__(self, backend: Backend) -> None:
        self._items: deque[Item] = deque()
        self._idle = Waiters(backend.make_lock)
        self._until_empty = Waiters(backend.make_lock)
        self._yield_if_due = backend.yield_if_due
        self._is_closed = False

    def put_all(self, items: Iterable[Item]) -> None:
        self._items.extend(items)
        self._idle.wake()

    def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until a worker has found the queue empty, or for `timeout_s`."""
        if self._items:
            self._until_empty.wait(lambda: not self._items, timeout_s)

    def clear(self) -> list[Item]:
        """Remove and return the items that no worker has taken."""
        items = []
        while self._items:
            try:
                items.append(self._items.popleft())
            except IndexError:  # a worker was faster
                break
        return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        self._is_closed = True
        self._idle.wake_all()

    def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        if self._yield_if_due is not None:
            self._yield_if_due()
        while True:
            is_closed = self._is_closed  # read before the items: none are added after it
            try:
                return self._items.popleft()
            except IndexError:
                pass  # what waits does so outside of this exception: it would be shown as the context of Ctrl-C
            if is_closed or not self._wait(timeout_s):
                return None

    def _wait(self, timeout_s: float | None) -> bool:
        """Return False after the time-out; without one, True at the latest after some seconds."""
        self._until_empty.wake()
        longest_s = _LONGEST_WAIT_S if timeout_s is None else timeout_s
        try:
            was_woken = self._idle.wait(lambda: self._items or self._is_closed, longest_s)
        except BaseException:
            self._idle.wake()  # it may have been woken for an item
            raise
        if len(self._items) > 1:
            self._idle.wake()
        return was_woken or timeout_s is None
