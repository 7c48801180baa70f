"""The buffer that collects the publishes of one event-loop iteration to a topic, and makes batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nsqd_py.pqueues.alarms import Clock
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import IDS_PER_TICK, GuidFactory

# Collected publishes above this size become a separate record, because joining large bodies copies them. A batch with more
# messages than a tick has ids would have to be parsed to be divided.
_SEAL_ABOVE = 128 * 1024
# The lists of all empty buffers; nothing is added to it. With many topics, each list takes misses of the cache.
NOTHING: list[Any] = []


class Publisher(Protocol):
    """The publisher of a batch. It is notified only if the write fails: its answer is queued already."""

    def publish_failed(self, ticket: int, error: OSError) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


Tickets = list[tuple[Publisher, int]]


def hold(publishers: Tickets) -> None:
    """Hold the answers to these publishers."""
    for publisher, _ in publishers:
        publisher.hold()


def release(publishers: Tickets) -> None:
    """End one hold of the answers to these publishers."""
    for publisher, _ in publishers:
        publisher.release()


@dataclass(slots=True, eq=False, repr=False)
class PublishBuffer:
    """The publishes of one topic that are not written yet, from all clients, over TCP and HTTP alike.

    Ids and due times use the steady clock, timestamps the wall clock.

    end_seq    the sequence number after the last message in the buffer
    _on_first  called with `_owner` when the first publish arrives in an empty buffer
    """

    end_seq: int
    _guids: GuidFactory
    _wall_clock: Clock
    _steady_clock: Clock
    _on_first: Callable[[Any], None]
    _owner: Any
    _is_waiting: bool = False
    _bodies: list[bytes] = field(default_factory=list)
    _count: int = 0
    _bytes: int = 0
    _most_bytes: int = -1  # of the batch that is being collected; -1: there is none
    _stride: int = 0
    _defer_ns: int = 0
    _sealed: list[Batch] = field(default_factory=list)
    _publishers: Tickets = field(default_factory=list)

    def publish(
        self,
        body: bytes,
        count: int,
        stride: int,
        publisher: Publisher | None,
        ticket: int,
        defer_ns: int = 0,
    ) -> None:
        """Add `count` messages, encoded as a batch's body. They are written at the end of this event-loop iteration.

        They are due `defer_ns` after that. If the write fails, `publisher.publish_failed(ticket, error)` is called.
        """
        count_after = self._count + count
        bytes_after = self._bytes + len(body)
        if bytes_after > self._most_bytes or count_after > IDS_PER_TICK or defer_ns != self._defer_ns:
            self._begin(stride, defer_ns)
            count_after = count
            bytes_after = len(body)
        elif stride != self._stride:
            self._stride = 0
        self._count = count_after
        self._bytes = bytes_after
        self._bodies.append(body)
        if publisher is not None:
            self._publishers.append((publisher, ticket))

    def _begin(self, stride: int, defer_ns: int) -> None:
        """Begin a batch, because there is none, or because the publish does not fit in it."""
        if self._bodies:
            self._seal()
        self._bodies = []
        self._stride = stride
        self._defer_ns = defer_ns
        self._most_bytes = _SEAL_ABOVE
        if not self._is_waiting:
            self._start()

    def _start(self) -> None:
        """Make the lists of this iteration, and register for its end."""
        self._is_waiting = True
        self._sealed = []
        self._publishers = []
        self._on_first(self._owner)

    def close(self) -> None:
        """Drop the owner, which refers to this buffer. Call it after the last publish to the topic."""
        self._on_first = _ignore
        self._owner = None

    def publish_parts(
        self,
        parts: Sequence[tuple[bytes, int, int]],
        publisher: Publisher | None,
        ticket: int,
        defer_ns: int = 0,
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
        if not self._is_waiting:
            self._start()
        self._sealed.append(
            Batch(
                self.end_seq, batch.base_id, batch.timestamp_ns, due_ns, batch.count, batch.stride, batch.body
            )
        )
        self.end_seq += batch.count
        self._publishers.append((publisher, ticket))

    def take(self) -> tuple[list[Batch], Tickets]:
        """Empty the buffer. Return its batches and their publishers."""
        self._is_waiting = False
        if self._bodies:
            self._seal()
        taken = self._sealed, self._publishers
        self._sealed = NOTHING
        self._publishers = NOTHING
        return taken

    def _seal(self) -> None:
        """Make a batch of the collected publishes."""
        bodies = self._bodies
        count = self._count
        stride = self._stride
        self._bodies = NOTHING
        self._count = 0
        self._bytes = 0
        self._most_bytes = -1
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        now_ns = self._wall_clock()
        steady_ns = self._steady_clock()
        due_ns = steady_ns + self._defer_ns if self._defer_ns else 0
        base_id = self._guids.reserve(count, steady_ns)
        self._sealed.append(Batch(self.end_seq, base_id, now_ns, due_ns, count, stride, body))
        self.end_seq += count


def _ignore(_: object) -> None:
    pass
