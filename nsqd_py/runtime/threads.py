"""Blocking work, done in threads."""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
from gevent.hub import Waiter

_READABLE = 1


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
        except BaseException as error:  # noqa: BLE001 - raised again by the greenlet that waits
            self.error = error


class _DiskThread:
    """One thread of `DiskThreads`, which does one job at a time, until the process ends.

    job  the job that it does, or has done
    """

    __slots__ = ("_begun", "_on_done", "job")

    def __init__(self, on_done: Callable[[_DiskThread], None]) -> None:
        """Call `on_done` in the thread after each job. Raises OSError."""
        self.job: _Job
        self._on_done = on_done
        self._begun = os.eventfd(0, os.EFD_CLOEXEC)
        start_new_thread(self._work, ())

    def begin(self, job: _Job) -> None:
        """Let the thread do a job; it must be idle."""
        self.job = job
        os.eventfd_write(self._begun, 1)

    def _work(self) -> None:
        while True:
            os.eventfd_read(self._begun)
            self.job.run()
            self._on_done(self)


class DiskThreads:
    """The threads that use the disk, as gevent's thread pool, but with less work for each call.

    A call takes 30 us of processor, with gevent's pool 110: with --sync-every=1 and 16 publishers that was 45 % of all.
    Threads and event loop wake each other by eventfd(2), which takes 2.5 context switches a call; a queue and a watcher
    that other threads may notify take 5. Before `serve`, work is done in this thread: no client waits for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._waiting: deque[_Job] = deque()
        self._idle: list[_DiskThread] = []
        self._done: deque[_DiskThread] = deque()
        self._running = 0
        self._thread_count = 0
        self._notified = -1
        self._watcher: Any = None

    def serve(self) -> None:
        """Use threads from now on, so that the loop continues. Raises OSError."""
        if self._is_serving:
            return
        self._is_serving = True
        self._notified = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._watcher = gevent.get_hub().loop.io(self._notified, _READABLE, ref=False)
        self._watcher.start(self._on_done)
        self._add_thread()  # now, when there are descriptors

    def _add_thread(self) -> None:
        self._idle.append(_DiskThread(self._note_done))
        self._thread_count += 1

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns, or raise what it raises. Blocks this greenlet."""
        if not self._is_serving:
            return work(*arguments)
        waiter: Any = Waiter()
        job = _Job(work, arguments, waiter)
        self._begin(job)
        waiter.get()
        if job.error is not None:
            raise job.error
        return job.result

    def _begin(self, job: _Job) -> None:
        if not self._idle and self._thread_count < self._most:
            with suppress(OSError):  # no descriptor is left: the job waits for a thread that exists
                self._add_thread()
        if not self._idle:
            self._waiting.append(job)
            return
        self._running += 1
        self._watcher.ref = True  # else a loop with nothing else to wait for would end
        self._idle.pop().begin(job)  # the thread that was used last: its memory is in the processor's cache

    def _note_done(self, thread: _DiskThread) -> None:
        """Notify the event loop; called in the thread."""
        self._done.append(thread)
        os.eventfd_write(self._notified, 1)

    def _on_done(self) -> None:
        os.eventfd_read(self._notified)
        while self._done:
            thread = self._done.popleft()
            job = thread.job
            if self._waiting:
                thread.begin(self._waiting.popleft())
            else:
                self._idle.append(thread)
                self._running -= 1
                if not self._running:
                    self._watcher.ref = False
            job.waiter.switch(None)
