"""Writing to a disk that is slow: in a thread, so that the loop, with all other topics and clients, goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.disk_pace import DiskPace
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Appending
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.threads import in_thread

if TYPE_CHECKING:
    from nsqd_py.queue.topic import Topic


class SlowWriter:
    """Write what is published to one topic in a thread, in order; its publishers wait until it is written.

    room  is entered to open a file, and left when that is done; may block its greenlet, and raise OSError
    """

    __slots__ = (
        "_batches", "_begun", "_greenlet", "_log", "_pace", "_publishers", "_room", "_threadpool", "_topic",
    )  # fmt: skip

    def __init__(
        self, topic: Topic, log: TopicLog, threadpool: Any, pace: DiskPace,
        room: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._log = log
        self._threadpool = threadpool
        self._pace = pace
        self._room = room
        self._begun: tuple[Appending, Tickets] | None = None
        self._batches: list[Batch] = []
        self._publishers: Tickets = []
        self._greenlet: Any = None

    @property
    def is_idle(self) -> bool:
        return self._greenlet is None

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these next; their numbers go on from what was added before."""
        for publisher, _ in publishers:
            publisher.hold()
        self._batches += batches
        self._publishers += publishers
        self._start()

    def go_on(self, appending: Appending, publishers: Tickets) -> None:
        """Do the rest of a write that the event loop began. To be called only when this writer is idle."""
        for publisher, _ in publishers:
            publisher.hold()
        self._begun = appending, publishers
        self._start()

    def _start(self) -> None:
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

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
            self._greenlet = None
            self._topic.written_slowly()

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
        except BaseException as error:  # a bug must not leave them answered with OK
            self._refuse(appending, publishers, OSError(f"internal error: {error!r}"))
            raise
        else:
            self._topic.accept_written(appending.batches, publishers)
        finally:
            self._pace.end(appending, appending.timer.slowest_ns)
            for publisher, _ in publishers:
                publisher.release()

    def _refuse(self, appending: Appending, publishers: Tickets, error: OSError) -> None:
        """Also what came meanwhile: its numbers go on from these."""
        self._log.end_append(appending)
        self._topic.commit()
        publishers += self._take()[1]
        self._topic.refuse(appending.batches, publishers, error)

    def join(self) -> None:
        """Wait until all is written, or has failed. Blocks this greenlet."""
        if self._greenlet is not None:
            self._greenlet.join()
