"""A batch: messages as they were published, in one piece of memory; its ids, and the buffer that collects publishes to one.

The body is `[4-byte big-endian size][message]` for each message, as an MPUB has it after its count and a PUB after its
line. Messages have no objects until they are delivered.

Message ids are 64 bits of time, node and sequence, shown as 16 hex characters. Their layout (most significant first) is that
of Go's nsqd, which took it from noeqd and Snowflake: the time in units of 2**20 ns since `TWEPOCH`, 10 bits of node id, 12
bits of sequence. A batch has consecutive ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Protocol

SIZE_BYTES = 4
# Measured memory of a batch in addition to its body: the object, its numbers, its references in lists.
BATCH_BYTES = 290
_START_BYTES = 4
_SIZE = Struct(">I")
_read_size = _SIZE.unpack_from


class Batch:
    """`count` consecutive messages of a topic.

    first_seq     sequence number of the first message in its topic
    base_id       id of the first message; the others have the following ids
    timestamp_ns  time of the publish, since the Unix epoch
    due_ns        earliest delivery, since the Unix epoch; 0: at once
    stride        bytes from one message's size field to the next when all are of one size, else 0
    """

    __slots__ = ("_starts", "base_id", "body", "count", "due_ns", "first_seq", "stride", "timestamp_ns")

    def __init__(
        self,
        first_seq: int,
        base_id: int,
        timestamp_ns: int,
        due_ns: int,
        count: int,
        stride: int,
        body: bytes,
    ) -> None:
        self.first_seq = first_seq
        self.base_id = base_id
        self.timestamp_ns = timestamp_ns
        self.due_ns = due_ns
        self.count = count
        self.stride = stride
        self.body = body
        self._starts: Sequence[int] | None = None

    @property
    def end_seq(self) -> int:
        """The sequence number after the last message."""
        return self.first_seq + self.count

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the batch, including the offsets that it caches at the first delivery."""
        size_bytes = len(self.body) + BATCH_BYTES
        return size_bytes if self.stride else size_bytes + _START_BYTES * self.count

    @property
    def starts(self) -> Sequence[int]:
        """The offset of each message in the body, behind its size; one more entry ends the last message."""
        starts = self._starts
        if starts is None:
            starts = self._starts = self._find_starts()
        return starts

    def _find_starts(self) -> Sequence[int]:
        if self.stride:
            return range(SIZE_BYTES, len(self.body) + 2 * SIZE_BYTES, self.stride)
        starts = array("I")
        position = 0
        body = self.body
        for _ in range(self.count):
            starts.append(position + SIZE_BYTES)
            position += SIZE_BYTES + _read_size(body, position)[0]
        starts.append(position + SIZE_BYTES)
        return starts

    def part(self, low: int, high: int) -> Batch:
        """Return the messages with index `low` to `high` (not included) as another batch."""
        starts = self.starts
        body = self.body[starts[low] - SIZE_BYTES : starts[high] - SIZE_BYTES]
        return Batch(
            self.first_seq + low,
            self.base_id + low,
            self.timestamp_ns,
            self.due_ns,
            high - low,
            self.stride,
            body,
        )

    def message(self, index: int) -> bytes:
        """Return the body of one message."""
        starts = self.starts
        return self.body[starts[index] : starts[index + 1] - SIZE_BYTES]


def cut_out(whole: bytes | bytearray, start: int, after: int) -> bytes:
    """Return a part as bytes, copied once: slicing a bytearray would make a second copy."""
    if isinstance(whole, bytes):
        return whole[start:after]
    with memoryview(whole) as view:
        return bytes(view[start:after])


def uniform_stride(body: bytes, count: int) -> int:
    """Return the stride of a body if all `count` messages have one size, else 0.

    Four strided slices compare all size fields at once: 1 us for 200 messages, where a walk takes 25 us.
    """
    stride, rest = divmod(len(body), count)
    if rest or stride <= SIZE_BYTES or _read_size(body, 0)[0] != stride - SIZE_BYTES:
        return 0
    alike = count == body[::stride].count(body[0]) == body[1::stride].count(body[1])
    return (
        stride if alike and count == body[2::stride].count(body[2]) == body[3::stride].count(body[3]) else 0
    )


# ---- message ids

TWEPOCH = 1_288_834_974_288  # units of 2**20 ns since the Unix epoch
NODE_BITS = 10
SEQUENCE_BITS = 12
IDS_PER_TICK = 1 << SEQUENCE_BITS
TICK_SHIFT = SEQUENCE_BITS + NODE_BITS
TICK_BITS = 20
FIRST_ID_NS = TWEPOCH << TICK_BITS
END_OF_IDS_NS = FIRST_ID_NS + (1 << 63 - TICK_SHIFT + TICK_BITS)  # in the year 2083


def id_time_ns(message_id: int) -> int:
    """Return the latest time at which the id may have been generated, in ns since the epoch."""
    return ((message_id >> TICK_SHIFT) + TWEPOCH + 1 << TICK_BITS) - 1


class GuidFactory:
    """Generates rising ids, also when the clock steps back or ids are used up faster than it advances."""

    __slots__ = ("_end", "_next", "_node", "_tick")

    def __init__(self, node_id: int) -> None:
        self._node = node_id << SEQUENCE_BITS
        self._tick = TWEPOCH - 1  # a clock that was never set must not lead to negative ids
        self._next = self._end = 0  # the next id of this tick, and the one after its last

    @property
    def node_id(self) -> int:
        return self._node >> SEQUENCE_BITS

    @node_id.setter
    def node_id(self, node_id: int) -> None:
        """Give the ids from now on another node. To be called before the first one."""
        self._node = node_id << SEQUENCE_BITS

    def reserve(self, count: int, now_ns: int) -> int:
        """Return the first of `count` consecutive ids, 1 <= count <= IDS_PER_TICK."""
        tick = now_ns >> TICK_BITS
        if tick > self._tick or self._next + count > self._end:
            self._tick = max(tick, self._tick + 1)
            self._next = ((self._tick - TWEPOCH) << TICK_SHIFT) | self._node
            self._end = self._next + IDS_PER_TICK
        first = self._next
        self._next += count
        return first

    def skip_past(self, used_id: int) -> None:
        """Generate only ids above `used_id` from now on; after a restart, that is the highest one found."""
        used_tick = (used_id >> TICK_SHIFT) + TWEPOCH
        if used_tick >= self._tick:
            self._tick = used_tick
            self._next = self._end


# ---- publishes of one event-loop iteration

# Collected publishes above this size become a separate record, because joining large bodies copies them. A batch with more
# messages than a tick has ids would have to be parsed to be divided.
_SEAL_ABOVE = 128 * 1024


class Publisher(Protocol):
    """The publisher of a batch. It is notified only if the write fails: its answer is queued already."""

    def publish_failed(self, ticket: int, error: OSError) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


Tickets = list[tuple[Publisher, int]]

# The lists of all empty buffers; nothing is added to it. With many topics, each list takes misses of the cache.
NOTHING: list[Any] = []


@dataclass(slots=True, eq=False, repr=False)
class PublishBuffer:
    """The publishes of one topic that are not written yet, from all clients, over TCP and HTTP alike.

    Ids and due times use the steady clock, timestamps the wall clock.

    end_seq    the sequence number after the last message in the buffer
    _on_first  called with `_owner` when the first publish arrives in an empty buffer
    """

    end_seq: int
    _guids: GuidFactory
    _wall_clock: Callable[[], int]
    _steady_clock: Callable[[], int]
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
            count_after, bytes_after = count, len(body)
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
        self._sealed, self._publishers = [], []
        self._on_first(self._owner)

    def close(self) -> None:
        """Drop the owner, which refers to this buffer. Call it after the last publish to the topic."""
        self._on_first, self._owner = _ignore, None

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
        self._sealed = self._publishers = NOTHING
        return taken

    def _seal(self) -> None:
        """Make a batch of the collected publishes."""
        bodies, count, stride = self._bodies, self._count, self._stride
        self._bodies = NOTHING
        self._count = self._bytes = 0
        self._most_bytes = -1
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        now_ns, steady_ns = self._wall_clock(), self._steady_clock()
        due_ns = steady_ns + self._defer_ns if self._defer_ns else 0
        base_id = self._guids.reserve(count, steady_ns)
        self._sealed.append(Batch(self.end_seq, base_id, now_ns, due_ns, count, stride, body))
        self.end_seq += count


def _ignore(_: object) -> None:
    pass
