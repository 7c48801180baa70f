"""A batch: messages as they were published, in one piece of memory.

The body is `[4-byte big-endian size][message]` for each message, as an MPUB has it after its count and a PUB after its
line. Messages have no objects until they are delivered.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct

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
        if self.stride:
            return size_bytes
        return size_bytes + _START_BYTES * self.count

    @property
    def starts(self) -> Sequence[int]:
        """The offset of each message in the body, behind its size; one more entry ends the last message."""
        starts = self._starts
        if starts is None:
            starts = self._find_starts()
            self._starts = starts
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
    if not count == body[::stride].count(body[0]) == body[1::stride].count(body[1]):
        return 0
    if not count == body[2::stride].count(body[2]) == body[3::stride].count(body[3]):
        return 0
    return stride
