"""Work that would stop the event loop: it is done in threads, or in slices. A lock for greenlets."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, TypeVar

import gevent
from gevent.event import Event
from gevent.hub import Waiter

from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices

T = TypeVar("T")


def in_slices(items: Iterable[T]) -> Iterator[T]:
    """Yield the items. Other greenlets run between two of them whenever a millisecond has passed."""
    slices = WorkSlices(ONE_ROUND_S)
    for item in items:
        yield item
        slices.sleep_if_due()


def in_thread(threadpool: Any, work: Callable[..., object], *arguments: Any) -> None:
    """Run `work` in a thread while this greenlet waits. Raises the error of `work`.

    The thread returns the error as a value: the pool prints the traceback of an error that is raised, even if the
    caller handles it.
    """
    error = threadpool.apply(_attempt, (work, arguments))
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: together they would be a reference cycle


def _attempt(work: Callable[..., object], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001 - the waiting greenlet raises it
        return error
    return None


class GreenletLock:
    """A lock for the greenlets of one thread. gevent's own loads its monkey patches and logging: 4 ms
    and 1.1 MB of a start.
    """

    __slots__ = ("_is_free",)

    def __init__(self) -> None:
        self._is_free = Event()
        self._is_free.set()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return False after `timeout` seconds; a negative number means no limit."""
        ends_s = monotonic() + timeout
        while not self._is_free.is_set():
            left_s = None if timeout < 0 else max(0.0, ends_s - monotonic())
            if not (blocking and self._is_free.wait(left_s)):
                return False
        self._is_free.clear()
        return True

    def release(self) -> None:
        self._is_free.set()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Job:
    """A call on its way through a thread; `on_done` is called with it in the event loop."""

    __slots__ = ("arguments", "error", "on_done", "result", "work")

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]) -> None:
        self.work = work
        self.arguments = arguments
        self.on_done = on_done
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work(*self.arguments)
        except BaseException as error:  # noqa: BLE001 - raised in the greenlet that waits
            self.error = error

    def end(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        result, error = self.result, self.error
        self.result = self.error = None  # the traceback of an error holds the job
        if error is not None:
            try:
                raise error
            finally:
                del error
        return result


class _Thread:
    """A thread without work waits until `lock` is released; then it runs `job`, or ends if there is none."""

    __slots__ = ("job", "lock")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.lock = allocate_lock()
        self.lock.acquire()


class DiskThreads:
    """The threads that use the disk, as gevent's thread pool, but with less work for each call.

    A call takes 25 us of processor, with gevent's pool 110: with --sync-every=1 and 16 publishers that was 45 % of
    all. The calls that wake the other side, `release` and `send`, keep the interpreter lock. With eventfd(2) the lock is
    released, and the thread may wait for a processor while it has it: 16 publishers got less than half of the messages
    through on a busy machine. Each thread has a lock of its own: a queue that several threads wait for wakes two for a call.

    Before `serve` and after `stop`, work is done in the calling thread: no client waits for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._jobs: deque[Job | None] = deque()  # calls that wait for a thread; None ends the thread that takes it
        self._done: deque[tuple[Job, _Thread | None]] = deque()  # with the thread if it waits for another job
        self._idle: list[_Thread] = []
        self._running = 0
        self._thread_count = 0
        self._watcher: Any = None

    def serve(self) -> None:
        """Use threads from now on, so that the loop continues."""
        self._is_serving = True

    def stop(self) -> None:
        """End each thread as soon as all earlier calls have one."""
        self._is_serving = False
        self._jobs.extend([None] * self._thread_count)
        self._use_idle()

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns, or raise what it raises. Blocks this greenlet."""
        if not self._is_serving:
            return work(*arguments)
        waiter: Any = Waiter()
        self.begin(work, arguments, waiter.switch)
        return waiter.get().end()

    def begin(self, work: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]) -> None:
        """Call `work` in a thread, and then `on_done` in the event loop, with the job, whose `end` has the result."""
        job = Job(work, arguments, on_done)
        if not self._is_serving:
            job.run()
            on_done(job)
            return
        if self._watcher is None:
            self._watcher = gevent.get_hub().loop.async_()
        if not self._running:
            self._watcher.start(self._on_done)
        self._running += 1
        if not self._idle and self._thread_count < self._most:
            try:
                start_new_thread(self._work, (_Thread(job),))
                self._thread_count += 1
                return
            except RuntimeError:  # the system has no room for one; a job without any thread would wait forever
                if not self._thread_count:
                    self._running -= 1
                    raise
        self._jobs.append(job)
        self._use_idle()

    def _use_idle(self) -> None:
        """Wake threads for the calls that wait, the one that was used last first: its data are in the caches."""
        while self._idle and self._jobs:
            thread = self._idle.pop()
            thread.job = self._jobs.popleft()
            thread.lock.release()

    def _work(self, thread: _Thread) -> None:
        """Run in each thread, until `stop`."""
        job = thread.job
        while job is not None:
            job.run()
            try:
                following, idle = self._jobs.popleft(), None
            except IndexError:
                following, idle = None, thread
            self._done.append((job, idle))
            self._watcher.send()
            if idle is not None:
                thread.lock.acquire()
                following = thread.job
            job = following

    def _on_done(self) -> None:
        try:
            while self._done:
                job, thread = self._done.popleft()
                if thread is not None:
                    self._idle.append(thread)
                    self._use_idle()
                self._running -= 1
                if not self._running:  # a loop with nothing else to wait for may end
                    self._watcher.stop()
                job.on_done(job)
        finally:
            if self._done:  # after a bug in one of them, the others follow
                self._watcher.send()
