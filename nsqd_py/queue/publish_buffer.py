"""What is published to a topic in one turn of the event loop, until it is written: it becomes one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nsqd_py.batch import SIZE_BYTES, Batch, uniform_stride
from nsqd_py.guid import IDS_PER_TICK, GuidFactory
from nsqd_py.net.loop_iteration import Turn

_SEAL_ABOVE = 1024 * 1024  # bytes at which gathered publishes become a record of their own


class Publisher(Protocol):
    """Who published: told when it came to nothing. Success needs no word, the answer is under way."""

    def publish_failed(self, ticket: int, error: OSError) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


Tickets = list[tuple[Publisher, int]]


class Gathering:
    """The base of a topic, which takes and writes what gathered when the turn ends."""

    def __init__(
        self, next_seq: int, guids: GuidFactory, turn: Turn, wall_clock: Callable[[], int], id_clock: Callable[[], int]
    ) -> None:
        self._guids = guids
        self._turn = turn
        self._wall_clock = wall_clock
        self._id_clock = id_clock
        self._in_turn = False
        self._gathered: list[bytes] = []
        self._gathered_count = 0
        self._gathered_bytes = 0
        self._gathered_stride = 0
        self._sealed: list[Batch] = []
        self._sealed_end = next_seq
        self._publishers: Tickets = []

    def commit(self) -> None:
        """Write what gathered."""
        raise NotImplementedError

    def publish(
        self, body: bytes, count: int, stride: int, publisher: Publisher | None, ticket: int, due_ns: int = 0
    ) -> None:
        """Take `count` messages, in the form of a batch's body. They are in the log when this turn ends.

        `publisher.publish_failed(ticket, error)` is called when they could not be written.
        """
        if self._gathered and (
            due_ns
            or self._gathered_bytes + len(body) > _SEAL_ABOVE
            or self._gathered_count + count > IDS_PER_TICK  # else they would have to be walked to be divided
        ):
            self._seal()
        if not self._gathered:
            self._gathered_stride = stride
        elif stride != self._gathered_stride:
            self._gathered_stride = 0
        self._gathered.append(body)
        self._gathered_count += count
        self._gathered_bytes += len(body)
        if due_ns:
            self._seal(due_ns)
        if publisher is not None:
            self._publishers.append((publisher, ticket))
        if not self._in_turn:
            self._in_turn = True
            self._turn.add_committer(self)

    def publish_parts(
        self,
        parts: Sequence[tuple[bytes, int, int]],
        publisher: Publisher | None,
        ticket: int,
        due_ns: int = 0,
    ) -> None:
        """As `publish`, for one publish of many messages: each (body, count, stride) becomes a batch.

        All of them are written, or none.
        """
        if self._gathered:
            self._seal()
        for body, count, stride in parts:
            self._gathered.append(body)
            self._gathered_count = count
            self._gathered_stride = stride
            self._seal(due_ns)
        if publisher is not None:
            self._publishers.append((publisher, ticket))
        if not self._in_turn:
            self._in_turn = True
            self._turn.add_committer(self)

    def republish(self, batch: Batch, due_ns: int, publisher: Publisher, ticket: int) -> None:
        """Take messages that have ids and time stamps already."""
        if self._gathered:
            self._seal()
        self._sealed.append(
            Batch(self._sealed_end, batch.base_id, batch.timestamp_ns, due_ns, batch.count, batch.stride, batch.body)
        )
        self._sealed_end += batch.count
        self._publishers.append((publisher, ticket))
        if not self._in_turn:
            self._in_turn = True
            self._turn.add_committer(self)

    def _take_gathered(self) -> tuple[list[Batch], Tickets]:
        """All that came in this turn, as batches, and who published it."""
        self._in_turn = False
        if self._gathered:
            self._seal()
        taken = self._sealed, self._publishers
        if taken[0]:
            self._sealed = []
            self._publishers = []
        return taken

    def _seal(self, due_ns: int = 0) -> None:
        """What gathered becomes a batch, or several where one range of ids would not do."""
        bodies, count, stride = self._gathered, self._gathered_count, self._gathered_stride
        self._gathered = []
        self._gathered_count = self._gathered_bytes = 0
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        now_ns, id_ns = self._wall_clock(), self._id_clock()
        if count <= IDS_PER_TICK:
            self._sealed.append(
                Batch(self._sealed_end, self._guids.reserve(count, id_ns), now_ns, due_ns, count, stride, body)
            )
            self._sealed_end += count
            return
        starts = Batch(0, 0, 0, 0, count, stride, body).starts
        for low in range(0, count, IDS_PER_TICK):
            part_count = min(IDS_PER_TICK, count - low)
            part = body[starts[low] - SIZE_BYTES : starts[low + part_count] - SIZE_BYTES]
            base_id = self._guids.reserve(part_count, id_ns)
            part_stride = stride or uniform_stride(part, part_count)
            self._sealed.append(Batch(self._sealed_end, base_id, now_ns, due_ns, part_count, part_stride, part))
            self._sealed_end += part_count
