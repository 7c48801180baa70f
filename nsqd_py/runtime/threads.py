"""Blocking work, done in threads."""

from __future__ import annotations

from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import gevent
from gevent.hub import Waiter


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


class _Job:
    """A call on its way through a thread."""

    __slots__ = ("arguments", "error", "result", "waiter", "work")

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], waiter: Any) -> None:
        self.work = work
        self.arguments = arguments
        self.waiter = waiter
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work(*self.arguments)
        except BaseException as error:  # noqa: BLE001 - raised in the greenlet that waits
            self.error = error


class DiskThreads:
    """The threads that use the disk, as gevent's thread pool, but with less work for each call.

    A call takes 25 us of processor, with gevent's pool 110: with --sync-every=1 and 16 publishers that was 45 % of
    all. `put` and `send`, which wake the other side, keep the interpreter lock. With eventfd(2) a call takes half of
    the context switches, but the lock is released, and the thread may wait for a processor while it has it: 16
    publishers got less than half of the messages through on a busy machine.

    Before `serve` and after `stop`, work is done in the calling thread: no client waits for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._done: deque[_Job] = deque()
        self._running = 0
        self._thread_count = 0
        self._watcher: Any = None

    def serve(self) -> None:
        """Use threads from now on, so that the loop continues."""
        self._is_serving = True

    def stop(self) -> None:
        """End each thread as soon as all earlier calls have one."""
        self._is_serving = False
        for _ in range(self._thread_count):
            self._jobs.put(None)

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns, or raise what it raises. Blocks this greenlet."""
        if not self._is_serving:
            return work(*arguments)
        waiter: Any = Waiter()
        job = _Job(work, arguments, waiter)
        if self._watcher is None:
            self._watcher = gevent.get_hub().loop.async_()
        if self._running >= self._thread_count < self._most:
            try:
                start_new_thread(self._work, ())
                self._thread_count += 1
            except RuntimeError:  # the system has no room for one; a job without any thread would wait forever
                if not self._thread_count:
                    raise
        if not self._running:
            self._watcher.start(self._on_done)
        self._running += 1
        self._jobs.put(job)
        waiter.get()
        result, error = job.result, job.error
        job.result = job.error = None  # the traceback of an error holds the job
        if error is not None:
            try:
                raise error
            finally:
                del error
        return result

    def _work(self) -> None:
        """Run in each thread, until `stop`."""
        while (job := self._jobs.get()) is not None:
            job.run()
            self._done.append(job)
            self._watcher.send()

    def _on_done(self) -> None:
        while self._done:
            job = self._done.popleft()
            self._running -= 1
            if not self._running:  # a loop with nothing else to wait for may end
                self._watcher.stop()
            job.waiter.switch(None)


# ---- Greenlets that are reused.


_MOST_IDLE = 4


class ReusedGreenlets:
    """Runs functions as `gevent.spawn` does, if possible in a greenlet that has run another one before.

    That takes 3 us; a new greenlet takes 17, most of it because the system must give it memory for its calls.
    """

    def __init__(self) -> None:
        self._loop = gevent.get_hub().loop
        self._idle: list[Any] = []

    def spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        """Call `work` in the next event-loop iteration. An error that it raises is reported as one of a greenlet."""
        if self._idle:
            self._loop.run_callback(self._idle.pop().switch, (work, arguments))
        else:
            gevent.spawn(self._run, work, arguments)

    def _run(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        while True:
            work(*arguments)
            del work, arguments  # else they would exist until the greenlet is reused
            if len(self._idle) >= _MOST_IDLE:
                return
            waiter: Any = Waiter()
            self._idle.append(waiter)
            work, arguments = waiter.get()
