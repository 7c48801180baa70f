"""Writing and reading logs in threads while the disk is slow, so that the event loop can go on serving."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns
from typing import Any, TypeVar

import gevent
from gevent.hub import Waiter

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Appending, CallTimer
from nsqd_py.errors import InternalError
from nsqd_py.protocol.batch import Batch
from nsqd_py.queue.publish_buffer import Tickets, hold, release
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.threads import Job, in_thread

# The most pieces of one log that a thread has read, and no channel has taken yet.
MOST_PIECES = 8

T = TypeVar("T")


def in_timed_thread(threadpool: Any, disk_speed: DiskSpeed, *calls: Callable[[], T]) -> list[T]:
    """Return what these calls return in a thread, and record the slowest. Raises what they raise. Blocks this greenlet."""
    timer = CallTimer()

    def run() -> list[T]:
        found = []
        for call in calls:
            with timer:
                found.append(call())
        return found

    disk_speed.begin(timer)
    try:
        return in_thread(threadpool, run)
    finally:
        disk_speed.end(timer, timer.slowest_ns)


def disk_error(error: Exception) -> OSError:
    """Return the error to report, without its frames; a bug is logged, and becomes an OSError."""
    if isinstance(error, OSError):
        return error.with_traceback(None)
    gevent.get_hub().handle_error("a write or a read of the disk", type(error), error, error.__traceback__)
    return InternalError(error)


@dataclass(slots=True, eq=False, repr=False)
class SlowWriter:
    """Writes the publishes of one topic in a thread, in order; the publishers wait for their write.

    room  context manager around opening a file; it may block its greenlet, and raise OSError
    """

    _topic: Topic
    _log: TopicLog
    _threadpool: Any
    _disk_speed: DiskSpeed
    _room: Callable[[], AbstractContextManager[None]] = nullcontext
    _begun: tuple[Appending, Tickets] | None = None
    _batches: list[Batch] = field(default_factory=list)
    _publishers: Tickets = field(default_factory=list)
    _greenlet: Any = None
    is_idle: bool = True

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these batches next; their numbers continue from those added before."""
        hold(publishers)
        self._batches += batches
        self._publishers += publishers
        self._start()

    def go_on(self, appending: Appending, publishers: Tickets) -> None:
        """Finish a write that the event loop began. Call it only when this writer is idle."""
        hold(publishers)
        self._begun = appending, publishers
        self._start()

    def _start(self) -> None:
        if self.is_idle:
            self._greenlet = gevent.spawn(self._run)
            self.is_idle = False

    def _run(self) -> None:
        try:
            while self._begun or self._batches:
                if self._begun is not None:
                    appending, publishers = self._begun
                    self._begun = None
                else:
                    batches, publishers = self._take()
                    appending = self._log.begin_append(batches)
                self._write(appending, publishers)
        finally:
            self.is_idle = True

    def _take(self) -> tuple[list[Batch], Tickets]:
        taken = self._batches, self._publishers
        self._batches = []
        self._publishers = []
        return taken

    def _write(self, appending: Appending, publishers: Tickets) -> None:
        try:
            if appending.opens_file:
                room = self._room()
            else:
                room = nullcontext()
            with room:
                self._disk_speed.begin(appending)
                self._write_in_thread(appending)
                self._log.end_append(appending)
        except OSError as error:
            self._refuse(appending, publishers, error)
        except BaseException as error:  # after a bug, publishers must not be answered with OK
            self._refuse(appending, publishers, InternalError(error))
            raise
        else:
            self._topic.accept_written(appending.batches, publishers)
        finally:
            self._disk_speed.end(appending, appending.timer.slowest_ns)
            release(publishers)

    def _write_in_thread(self, appending: Appending) -> None:
        """Do the steps of an append in a thread. Raises what they raise; then the log continues in a new file."""
        waiter: Any = Waiter()

        def end(job: Job) -> None:
            self._log.release(appending)
            waiter.switch(job)

        self._threadpool.begin(appending.write, (), end)
        try:
            waiter.get().end()
        except BaseException:  # also if this greenlet is killed, and the thread still writes
            self._log.leave(appending)
            raise

    def _refuse(self, appending: Appending, publishers: Tickets, error: OSError) -> None:
        """Refuse these batches and those that came after them, whose numbers continue from them."""
        if not appending.is_left:
            self._log.end_append(appending)
        self._topic.commit()
        publishers += self._take()[1]
        self._topic.refuse(appending.batches, publishers, error)

    def join(self) -> None:
        """Wait until all batches are written or refused. Blocks this greenlet."""
        if not self.is_idle:
            self._greenlet.join()


class StillReading(BlockingIOError):
    """A thread is reading the requested bytes; ask again when it is done."""


class SlowReader:
    """Reads files of one log: directly while the disk is fast, else in a thread.

    on_read  called when the thread has read something
    """

    __slots__ = ("_asked", "_disk_speed", "_on_read", "_pieces", "_repairs", "_threadpool")

    def __init__(self, threadpool: Any, disk_speed: DiskSpeed, on_read: Callable[[], None]) -> None:
        self._threadpool = threadpool
        self._disk_speed = disk_speed
        self._on_read = on_read
        # Created when needed: an empty one takes 600 bytes per topic.
        self._pieces: OrderedDict[tuple[LogFile, int, int], bytes | OSError] | None = None
        self._asked: frozenset[tuple[LogFile, int, int]] = frozenset()
        self._repairs = 0

    def forget(self) -> None:
        """Read again what threads have read, or are reading: files were repaired or replaced."""
        self._pieces = None
        self._asked = frozenset()
        self._repairs += 1

    def read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Read like `LogFile.read`. Raises StillReading while a thread reads; call again after `on_read`."""
        if not self._disk_speed.is_slow:
            self._pieces = None
            began_ns = monotonic_ns()
            try:
                return file.read(offset, size)
            finally:
                self._disk_speed.note(monotonic_ns() - began_ns)
        key = file, offset, size
        pieces = self._pieces
        piece = None
        if pieces is not None:
            piece = pieces.get(key)
        if pieces is None or piece is None:
            if key not in self._asked:
                file.pin()  # it may be closed during the read
                self._asked |= {key}
                gevent.spawn(self._read_in_thread, key)
            raise StillReading
        if isinstance(piece, OSError):
            del pieces[key]
            try:
                raise piece
            finally:
                del piece  # its traceback holds this frame: together they would be a reference cycle
        pieces.move_to_end(key)
        return piece

    def _read_in_thread(self, key: tuple[LogFile, int, int]) -> None:
        file, offset, size = key
        repairs = self._repairs
        result: bytes | OSError
        read = partial(file.read, offset, size)
        try:
            (result,) = in_timed_thread(self._threadpool, self._disk_speed, read)
        except Exception as error:  # noqa: BLE001 - after a bug, the channel that waits must get an error
            result = disk_error(error)
        finally:
            file.unpin()
            is_new = repairs == self._repairs
            if is_new:
                self._asked -= {key}
        if is_new:
            self._keep(key, result)
        self._on_read()

    def _keep(self, key: tuple[LogFile, int, int], result: bytes | OSError) -> None:
        if self._pieces is None:
            self._pieces = OrderedDict()
        self._pieces[key] = result
        while len(self._pieces) > MOST_PIECES:
            self._pieces.popitem(last=False)
