"""Work that would stop the event loop: it is done in threads, or in slices. A lock for greenlets."""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar, cast

import gevent
from gevent.event import Event
from gevent.hub import Waiter

from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices

T = TypeVar("T")

_CHECK_S = 0.25
_PROGRESS_S = 0.05


def nothing() -> None:
    """Do nothing."""


def in_slices(items: Iterable[T]) -> Iterator[T]:
    """Yield the items. Other greenlets run between two of them whenever a millisecond has passed."""
    slices = WorkSlices(ONE_ROUND_S)
    for item in items:
        yield item
        slices.sleep_if_due()


def in_thread(threadpool: Any, work: Callable[..., T], *arguments: Any) -> T:
    """Return what `work` returns in a thread; this greenlet waits for it. Raises the error of `work`.

    The thread returns the error as a value: the pool prints the traceback of an error that is raised, even if the
    caller handles it.
    """
    found: list[T] = []
    _raise_if(threadpool.apply(_attempt, (found, work, arguments)))
    return found[0]


def _raise_if(error: Exception | None) -> None:
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: together they would be a reference cycle


def _attempt(found: list[T], work: Callable[..., T], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        found.append(work(*arguments))
    except Exception as error:  # noqa: BLE001 - the waiting greenlet raises it
        return error
    return None


def in_thread_while(
    threadpool: DiskThreads,
    check: Callable[[], None],
    work: Callable[[], T],
    on_ended: Callable[[], None] = nothing,
) -> T:
    """Return what `work` returns in a thread. This greenlet waits for it, for as long as `check` raises nothing.

    The thread does not end with the wait. `on_ended` is called once, in the event loop, when no thread uses what `work` uses:
    after `work`, or if it was not begun. Raises what `check` or `work` raises.
    """
    ended = Event()
    found: list[T] = []
    # Not the job: it has `on_done`, and they would be a reference cycle.
    errors: list[Exception | None] = []
    is_left = False

    def on_done(job: Job) -> None:
        try:
            error = job.end()
            if not is_left:  # nobody would take it out, and its traceback holds the job, too
                errors.append(error)
        finally:
            ended.set()
            on_ended()

    try:
        check()
        threadpool.begin(_attempt, (found, work, ()), on_done)
    except BaseException:
        on_ended()
        raise
    try:
        while not ended.wait(_CHECK_S):
            check()
    except BaseException:
        is_left = True
        raise
    _raise_if(errors.pop())
    return found[0]


class _NotNeeded(BaseException):
    """The greenlet that waited for the work has ended."""


def in_thread_with_progress(
    work: Callable[[Callable[[], None]], object], on_progress: Callable[[], object]
) -> None:
    """Run long work of a start in a thread of its own, while other greenlets run. Raises the error of `work`.

    work         gets a function that it calls between two steps. That ends the work if `on_progress` has raised an error
    on_progress  called by this greenlet, again and again; when it raises an error, this returns after the work has ended
    """
    from gevent.threadpool import ThreadPool  # 2 ms of a start, which few need

    is_over = threading.Event()

    def go_on() -> None:
        if is_over.is_set():
            raise _NotNeeded

    def run() -> BaseException | None:
        try:
            work(go_on)
        except BaseException as error:  # noqa: BLE001 - the waiting greenlet raises it
            return error
        return None

    pool = ThreadPool(1)
    answer: Any = pool.spawn(run)
    try:
        while not answer.ready():
            answer.wait(_PROGRESS_S)
            on_progress()
    finally:
        is_over.set()
        error = answer.get()
        pool.kill()
    if error is not None:
        raise error


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
            if timeout < 0:
                left_s = None
            else:
                left_s = max(0.0, ends_s - monotonic())
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

    def __init__(
        self, work: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]
    ) -> None:
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
        result = self.result
        error = self.error
        self.result = self.error = None  # the traceback of an error holds the job
        if error is not None:
            try:
                raise error
            finally:
                del error
        return result


def _job_of(waiter: Any) -> Job:
    """Return the job that `waiter` gets. An exception that others throw into this greenlet is raised after that."""
    try:
        return cast(Job, waiter.get())
    except BaseException:
        _job_of(waiter)
        raise


class _Thread:
    """A thread and its mailbox: the loop puts one job at a time into it, or None, which ends the thread."""

    __slots__ = ("mailbox",)

    def __init__(self) -> None:
        self.mailbox: SimpleQueue[Job | None] = SimpleQueue()


class DiskThreads:
    """The threads that use the disk, as gevent's thread pool, but with less work for each call.

    Each thread has a mailbox, and all share a queue of ended jobs. The event loop alone decides which thread gets a job,
    so no thread can take a job that the loop has given to another one. These rules keep that so:

    1. Threads touch three things: their own mailbox, `_ended`, and the job that they run. Mailboxes and `_ended` are queues
       of the standard library, which need no other lock. All other fields belong to the event loop.
    2. A thread is in `_idle` exactly while its mailbox is empty and it waits there. The loop puts a job into the mailbox of a
       thread that it has just removed from `_idle` or started, and returns the thread to `_idle` when it takes that
       job from `_ended`. So a mailbox never holds two jobs, and no thread gets a job while it has one.
    3. A job is in one of `_waiting`, a mailbox, a thread, and `_ended`, or `on_done` was called with it. `begin` either
       raises, and then the job never runs, or it adds the job to `_waiting` or a mailbox.
    4. A thread puts the job into `_ended` before it wakes the loop, and the loop takes all of `_ended` each time it is woken.
       So no answer stays behind, although the loop may be woken once for several of them.

    `tests/support/handovers.py` compares this with a model at a hostile schedule. A call takes 25 us of processor, with gevent's
    pool 110. A single queue that all threads wait for would wake two threads for a call. `send` keeps the interpreter lock;
    with eventfd(2) the lock is released, and 16 publishers got less than half of the messages through on a busy machine.

    Before `serve` and after `stop`, work is done in the calling thread: no client waits for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_serving = False
        self._ended: SimpleQueue[tuple[Job, _Thread]] = SimpleQueue()
        self._waiting: deque[Job] = deque()
        self._idle: list[_Thread] = []
        self._unanswered = 0
        self.thread_count = 0
        self._watcher: Any = None

    @property
    def idle_count(self) -> int:
        """The number of threads that wait for a job."""
        return len(self._idle)

    def serve(self) -> None:
        """Use threads from now on, so that the loop continues."""
        self._is_serving = True

    def stop(self) -> None:
        """End each thread as soon as all earlier calls have one."""
        self._is_serving = False
        while self._idle:
            self._end(self._idle.pop())

    def apply(self, work: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        """Return what `work` returns, or raise what it raises. Blocks this greenlet.

        If this greenlet is killed, it ends after `work`: what a thread still uses must not be closed, or given to others.
        """
        if not self._is_serving:
            return work(*arguments)
        waiter: Any = Waiter()
        self.begin(work, arguments, waiter.switch)
        return _job_of(waiter).end()

    def begin(
        self, work: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]
    ) -> None:
        """Call `work` in a thread, and then `on_done` in the event loop, with the job, whose `end` has the result.

        Raises RuntimeError if the system has no room for a first thread; then `work` is never called.
        """
        job = Job(work, arguments, on_done)
        if not self._is_serving:
            job.run()
            on_done(job)
            return
        if self._watcher is None:
            self._watcher = gevent.get_hub().loop.async_()
        if not self._unanswered:
            self._watcher.start(self._on_ended)  # before a thread may send
        self._unanswered += 1
        try:
            self._hand_over(job)
        except RuntimeError:
            self._answered_one()
            raise

    def _hand_over(self, job: Job) -> None:
        """Give the job to a thread, or let it wait for one. Raises RuntimeError."""
        if self._idle:
            self._idle.pop().mailbox.put(job)  # the one that was used last: its data are in the caches
        elif self.thread_count == self._most or not self._start(job):
            self._waiting.append(job)

    def _start(self, job: Job) -> bool:
        """Start a thread for the job; return False if it must wait for one that exists. Raises RuntimeError."""
        thread = _Thread()
        thread.mailbox.put(job)
        try:
            start_new_thread(self._work, (thread,))
        except RuntimeError:  # the system has no room for one; a job without any thread would wait forever
            if not self.thread_count:
                raise
            return False
        self.thread_count += 1
        return True

    def _answered_one(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:  # a loop with nothing else to wait for may end
            self._watcher.stop()

    def _end(self, thread: _Thread) -> None:
        self.thread_count -= 1
        thread.mailbox.put(None)

    def _work(self, thread: _Thread) -> None:
        """Run in each thread, until it gets no job."""
        while (job := thread.mailbox.get()) is not None:
            job.run()
            self._ended.put((job, thread))
            del job  # an idle thread would keep what the last job has read
            self._watcher.send()

    def _on_ended(self) -> None:
        """Give the threads of all ended jobs something else to do, and answer the callers."""
        try:
            while not self._ended.empty():
                job, thread = self._ended.get_nowait()
                self._answered_one()
                if self._waiting:
                    thread.mailbox.put(self._waiting.popleft())
                elif self._is_serving:
                    self._idle.append(thread)
                else:
                    self._end(thread)
                job.on_done(job)
        finally:
            if not self._ended.empty():  # after a bug in one of them, the others follow
                self._watcher.send()
