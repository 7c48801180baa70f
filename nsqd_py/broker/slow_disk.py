"""Writing and reading in threads while the disk is slow, so that the event loop can go on serving."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic_ns
from typing import Any

import gevent

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Appending
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import CallTimer, DiskPace
from nsqd_py.runtime.threads import in_thread


class SlowWriter:
    """Writes the publishes of one topic in a thread, in order; the publishers wait for their write.

    room  context manager around opening a file; it may block its greenlet, and raise OSError
    """

    __slots__ = ("_batches", "_begun", "_greenlet", "_log", "_pace", "_publishers", "_room", "_threadpool", "_topic", "is_idle")

    def __init__(
        self,
        topic: Topic,
        log: TopicLog,
        threadpool: Any,
        pace: DiskPace,
        room: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._topic = topic
        self._log = log
        self._threadpool = threadpool
        self._pace = pace
        self._room = room
        self._begun: tuple[Appending, Tickets] | None = None
        self._batches: list[Batch] = []
        self._publishers: Tickets = []
        self._greenlet: Any = None
        self.is_idle = True

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these batches next; their numbers continue from those added before."""
        for publisher, _ in publishers:
            publisher.hold()
        self._batches += batches
        self._publishers += publishers
        self._start()

    def go_on(self, appending: Appending, publishers: Tickets) -> None:
        """Finish a write that the event loop began. Call it only when this writer is idle."""
        for publisher, _ in publishers:
            publisher.hold()
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
                    (appending, publishers), self._begun = self._begun, None
                else:
                    batches, publishers = self._take()
                    appending = self._log.begin_append(batches)
                self._write(appending, publishers)
        finally:
            self.is_idle = True

    def _take(self) -> tuple[list[Batch], Tickets]:
        taken = self._batches, self._publishers
        self._batches, self._publishers = [], []
        return taken

    def _write(self, appending: Appending, publishers: Tickets) -> None:
        try:
            with self._room() if appending.opens_file else nullcontext():
                self._pace.begin(appending)
                in_thread(self._threadpool, appending.write)
                self._log.end_append(appending)
        except OSError as error:
            self._refuse(appending, publishers, error)
        except BaseException as error:  # after a bug, publishers must not be answered with OK
            self._refuse(appending, publishers, OSError(f"internal error: {error!r}"))
            raise
        else:
            self._topic.accept_written(appending.batches, publishers)
        finally:
            self._pace.end(appending, appending.timer.slowest_ns)
            for publisher, _ in publishers:
                publisher.release()

    def _refuse(self, appending: Appending, publishers: Tickets, error: OSError) -> None:
        """Refuse these batches and those that came after them, whose numbers continue from them."""
        self._log.end_append(appending)
        self._topic.commit()
        publishers += self._take()[1]
        self._topic.refuse(appending.batches, publishers, error)

    def join(self) -> None:
        """Wait until all batches are written or refused. Blocks this greenlet."""
        if not self.is_idle:
            self._greenlet.join()


_MOST_PIECES = 8


class StillReading(BlockingIOError):
    """A thread is reading the requested bytes; ask again when it is done."""


class SlowReader:
    """Reads files of one log: directly while the disk is fast, else in a thread.

    on_read  called when the thread has read something
    """

    __slots__ = ("_asked", "_on_read", "_pace", "_pieces", "_threadpool")

    def __init__(self, threadpool: Any, pace: DiskPace, on_read: Callable[[], None]) -> None:
        self._threadpool = threadpool
        self._pace = pace
        self._on_read = on_read
        # Created when needed: an empty one takes 600 bytes per topic.
        self._pieces: OrderedDict[tuple[LogFile, int, int], bytes | OSError] | None = None
        self._asked: frozenset[tuple[LogFile, int, int]] = frozenset()

    def read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Read like `LogFile.read`. Raises StillReading while a thread reads; call again after `on_read`."""
        if not self._pace.is_slow:
            self._pieces = None
            began_ns = monotonic_ns()
            try:
                return file.read(offset, size)
            finally:
                self._pace.note(monotonic_ns() - began_ns)
        place = file, offset, size
        pieces = self._pieces
        piece = pieces.get(place) if pieces is not None else None
        if pieces is None or piece is None:
            if place not in self._asked:
                file.hold()  # it may be closed during the read
                self._asked |= {place}
                gevent.spawn(self._read_in_thread, place)
            raise StillReading
        if isinstance(piece, OSError):
            del pieces[place]
            try:
                raise piece
            finally:
                del piece  # its traceback holds this frame: together they would be a reference cycle
        pieces.move_to_end(place)
        return piece

    def _read_in_thread(self, place: tuple[LogFile, int, int]) -> None:
        file, offset, size = place
        timer = CallTimer()
        result: bytes | OSError = b""

        def read() -> None:
            nonlocal result
            with timer:
                result = file.read(offset, size)

        self._pace.begin(timer)
        try:
            in_thread(self._threadpool, read)
        except OSError as error:
            result = error.with_traceback(None)
        finally:
            self._pace.end(timer, timer.slowest_ns)
            file.release()
            self._asked -= {place}
        if self._pieces is None:
            self._pieces = OrderedDict()
        self._pieces[place] = result
        while len(self._pieces) > _MOST_PIECES:
            self._pieces.popitem(last=False)
        self._on_read()
