"""Publishes collected during one iteration of the event loop; they are written to the log as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.guid import IDS_PER_TICK, GuidFactory
from nsqd_py.runtime.disk_pace import DiskPace

# Collected publishes above this size become a separate record, because joining large bodies copies them.
_SEAL_ABOVE = 128 * 1024


class Publisher(Protocol):
    """The publisher of a batch. It is notified only if the write fails: its answer is queued already."""

    def publish_failed(self, ticket: int, error: OSError) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


Tickets = list[tuple[Publisher, int]]


class PublishBuffer:
    """The publishes of one topic that are not written yet, from all clients, over TCP and HTTP alike.

    end_seq  the sequence number after the last message in the buffer
    """

    __slots__ = (
        "_bodies",
        "_bytes",
        "_count",
        "_defer_ns",
        "_guids",
        "_is_waiting",
        "_on_first",
        "_publishers",
        "_sealed",
        "_steady_clock",
        "_stride",
        "_wall_clock",
        "end_seq",
    )

    def __init__(
        self,
        next_seq: int,
        guids: GuidFactory,
        wall_clock: Callable[[], int],
        steady_clock: Callable[[], int],
        on_first: Callable[[], None],
    ) -> None:
        """Ids and due times use the steady clock, timestamps the wall clock.

        Call `on_first` when the first publish arrives in an empty buffer.
        """
        self.end_seq = next_seq
        self._guids = guids
        self._wall_clock = wall_clock
        self._steady_clock = steady_clock
        self._on_first = on_first
        self._is_waiting = False
        self._bodies: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._stride = 0
        self._defer_ns = 0
        self._sealed: list[Batch] = []
        self._publishers: Tickets = []

    def publish(self, body: bytes, count: int, stride: int, publisher: Publisher | None, ticket: int, defer_ns: int = 0) -> None:
        """Add `count` messages, encoded as a batch's body. They are written at the end of this event-loop iteration.

        They are due `defer_ns` after that. If the write fails, `publisher.publish_failed(ticket, error)` is called.
        """
        bodies = self._bodies
        if bodies and (
            defer_ns != self._defer_ns
            or self._bytes + len(body) > _SEAL_ABOVE
            or self._count + count > IDS_PER_TICK  # a larger batch would have to be parsed to be divided
        ):
            self._seal()
            bodies = self._bodies
        if not bodies:
            self._stride = stride
            self._defer_ns = defer_ns
        elif stride != self._stride:
            self._stride = 0
        bodies.append(body)
        self._count += count
        self._bytes += len(body)
        if publisher is not None:
            self._publishers.append((publisher, ticket))
        if not self._is_waiting:
            self._is_waiting = True
            self._on_first()

    def close(self) -> None:
        """Drop `on_first`, which refers to the topic. Call it after the last publish to the topic."""
        self._on_first = _ignore

    def publish_parts(
        self, parts: Sequence[tuple[bytes, int, int]], publisher: Publisher | None, ticket: int, defer_ns: int = 0
    ) -> None:
        """Add one publish of several batches (body, count, stride). All are written, or none."""
        for body, count, stride in parts:
            if self._bodies:
                self._seal()
            self.publish(body, count, stride, None, 0, defer_ns)
        if publisher is not None:
            self._publishers.append((publisher, ticket))

    def republish(self, batch: Batch, due_ns: int, publisher: Publisher, ticket: int) -> None:
        """Add a batch that keeps its ids and timestamps."""
        if self._bodies:
            self._seal()
        self._sealed.append(Batch(self.end_seq, batch.base_id, batch.timestamp_ns, due_ns, batch.count, batch.stride, batch.body))
        self.end_seq += batch.count
        self._publishers.append((publisher, ticket))
        if not self._is_waiting:
            self._is_waiting = True
            self._on_first()

    def take(self) -> tuple[list[Batch], Tickets]:
        """Empty the buffer. Return its batches and their publishers."""
        self._is_waiting = False
        if self._bodies:
            self._seal()
        taken = self._sealed, self._publishers
        if taken[0]:
            self._sealed = []
            self._publishers = []
        return taken

    def _seal(self) -> None:
        """Make a batch of the collected publishes."""
        bodies, count, stride = self._bodies, self._count, self._stride
        self._bodies = []
        self._count = self._bytes = 0
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        now_ns, steady_ns = self._wall_clock(), self._steady_clock()
        due_ns = steady_ns + self._defer_ns if self._defer_ns else 0
        base_id = self._guids.reserve(count, steady_ns)
        self._sealed.append(Batch(self.end_seq, base_id, now_ns, due_ns, count, stride, body))
        self.end_seq += count


def _ignore() -> None:
    pass


# A larger publish is written in a thread, also while the disk is quick. A publish of 5 MB blocked the loop for 7 to 15
# ms, for its checksum and the copy to the page cache; now for 1.5 ms, or 5 ms if it has a million messages.
_AT_ONCE_BYTES = 2 * 1024 * 1024


class BatchWriter(Protocol):
    """Writes batches to a log in a thread."""

    is_idle: bool

    def add(self, batches: list[Batch], publishers: Tickets) -> None:
        """Write these batches next; their numbers continue from those added before."""

    def go_on(self, appending: Any, publishers: Tickets) -> None:
        """Finish a write that the event loop began. Call it only when this writer is idle."""

    def join(self) -> None:
        """Wait until all batches are written or refused. Blocks this greenlet."""


def append(
    log: TopicLog, pace: DiskPace, writer: BatchWriter | None, batches: list[Batch], size_bytes: int, publishers: Tickets
) -> bool:
    """Append batches to a log. Return False if a thread writes them, or the rest of them. Raises OSError."""
    if writer is not None and (not writer.is_idle or pace.is_slow or size_bytes > _AT_ONCE_BYTES):
        writer.add(batches, publishers)
        return False
    if pace.timed(partial(log.append_at_once, batches, size_bytes)):  # one system call
        return True
    if writer is not None and log.opens_file(size_bytes) and not OPEN_FILES.has_room():
        writer.add(batches, publishers)
        return False
    appending = log.begin_append(batches)
    try:
        while not appending.is_written:
            if writer is not None and pace.is_slow:  # after a slow call, a thread does the rest
                writer.go_on(appending, publishers)
                return False
            pace.timed(appending.step)
    except BaseException:
        log.end_append(appending)
        raise
    log.end_append(appending)
    return True
