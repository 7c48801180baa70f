"""A chunk: messages of one topic in columns of numpy and Arrow, which all readers yield.

A few calls for a column, however many messages there are.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.splits import ArchiveError, Numbers, Requested, Span
from nsq_spark.schema import TEXT, arrow_schema
from nsqd_py.protocol.batch import SIZE_BYTES, Batch

ID_BYTES = 16
_INDEX_BITS = 20
MOST_MESSAGES = 50_000
MOST_BYTES = 4 * 1024 * 1024
_ASCII_END = 0x80
_SMALLEST_CONSTANT = 1024
# The two characters of each byte, as one number: half as many look-ups as one for each character.
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)
# The attributes of a chunk that have the columns of `nsq_spark.schema`.
_ATTRIBUTES = {
    "topic": "topic",
    "channel": "channel",
    "timestamp": "timestamps_us",
    "timestamp_ns": "timestamps_ns",
    "id": "ids",
    "attempts": "attempts",
    "body": "bodies",
    "nsqd": "nsqds",
    "file": "file",
    "position": "positions",
}

# The bounds of messages that follow each other.
Ranges: TypeAlias = Iterator[Span]
# The nsqd of each message: one name for all, none, or a dictionary array.
Nsqds: TypeAlias = str | pa.DictionaryArray | None


# ---- Arrow columns


def binary_array(offsets: Numbers, values: Any, *, text: bool = False) -> pa.Array:
    """Return the values between each offset and the next; `values` is a buffer, which is not copied."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32, copy=False)), values]
    return pa.Array.from_buffers(pa.string() if text else pa.binary(), len(offsets) - 1, buffers)


# `pa.array`, `pa.scalar` and `to_numpy` import pandas, which costs each Python process 0.4 s of processor time: so these two do
# without them.


def numbers_array(values: Numbers, kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array of a type of the same or another width."""
    numbers = np.ascontiguousarray(values, f"i{kind.byte_width}")
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def numbers_of(array: pa.Array) -> Numbers:
    """Return the values of an array of signed numbers without nulls, not copied."""
    values = np.frombuffer(array.buffers()[1], f"i{array.type.byte_width}")
    return values[array.offset : array.offset + len(array)]


def hex_ids(numbers: Numbers) -> pa.Array:
    """Return ids as 16 hex characters: 10 ns each."""
    octets = numbers.astype(">u8").view(np.uint8)
    return _equally_long(pa.py_buffer(_HEX[octets]), ID_BYTES, len(numbers))


def stored_ids(octets: Numbers) -> pa.Array:
    """Return the texts of ids of 16 bytes each, in an array of n x 16. What is not ASCII is escaped."""
    if octets.size and octets.max() >= _ASCII_END:
        texts = [row.tobytes().decode("ascii", "backslashreplace") for row in octets]
        return pa.array(texts, pa.string())
    joined = pa.py_buffer(np.ascontiguousarray(octets))
    return _equally_long(joined, ID_BYTES, len(octets))


def _equally_long(values: Any, size_bytes: int, count: int, *, text: bool = True) -> pa.Array:
    """Return `count` values of the same size, one behind the other in a buffer."""
    return binary_array(np.arange(count + 1) * size_bytes, values, text=text)


def constant(text: str, count: int) -> pa.Array:
    """Return an array of one text: a slice of a cached one, since all chunks of a file need the same."""
    room = max(_SMALLEST_CONSTANT, 1 << (count - 1).bit_length())
    return _constant(text, room).slice(0, count)


@lru_cache(maxsize=32)
def _constant(text: str, count: int) -> pa.Array:
    value = text.encode()
    return _equally_long(pa.py_buffer(value * count), len(value), count)


# ---- structures and runs of values


def heads_at(data: bytes, offsets: Any, head: np.dtype[Any]) -> Numbers:
    """Return the structures at some offsets of `data`, as one array: 20 ns each."""
    room = len(data) - head.itemsize + 1
    if room <= 0 or not len(offsets):
        return np.zeros(0, head)
    # One begins at every byte, without a copy.
    windows: Numbers = np.ndarray((room,), head, data, strides=(1,))
    heads: Numbers = windows[offsets]
    return heads


def runs(sums: Numbers, greatest: int, most: int = sys.maxsize) -> Ranges:
    """Yield bounds of neighbours whose values together are at most `greatest`, of at most `most` values; a greater value is
    alone. `sums` has the sum of the values up to each and with it.
    """
    low = 0
    before = 0
    while low < len(sums):
        high = int(sums.searchsorted(before + greatest, "right"))
        high = max(low + 1, min(high, low + most))
        yield low, high
        low = high
        before = int(sums[high - 1])


def equal_runs(changes: Numbers, count: int) -> Ranges:
    """Return bounds of neighbours without a change; `changes` is not 0 where value i + 1 is unlike value i."""
    return pairwise(sorted({0, *(np.flatnonzero(changes) + 1).tolist(), count}))


# ---- positions of messages: the offset of the record or line, and the index in it


def positions_of(offsets: Numbers) -> Numbers:
    """Return the positions of messages that are alone at their offsets."""
    return offsets.astype(np.int64) << _INDEX_BITS


def positions_in_records(offsets: Numbers, counts: Numbers) -> Numbers:
    """Return the positions of the messages of records at `offsets`. They rise: a record has more bytes than messages,
    so the index of its last message does not reach into the next offset.
    """
    return np.repeat(positions_of(offsets), counts) + index_in_records(counts)


def index_in_records(counts: Numbers) -> Numbers:
    """Return 0, 1, ... for the messages of each record, by the number of messages of each."""
    index: Numbers = np.arange(int(counts.sum()), dtype=np.int64)
    if len(counts) != 1:
        firsts = np.cumsum(counts) - counts
        index = index - np.repeat(firsts, counts)
    return index


@dataclass(eq=False)
class Payload:
    """Body i is the `sizes[i]` bytes from `starts[i]` on; bodies are in order and do not overlap.

    buffer  a pyarrow buffer, which is shared and not copied
    """

    buffer: Any
    starts: Numbers
    sizes: Numbers

    @classmethod
    def of_ranges(
        cls, buffer: Any, begins: Numbers, ends: Numbers, counts: Numbers, sizes: Numbers
    ) -> Payload:
        """Return the payload of bodies behind their sizes, in ranges of `counts` messages. Raises ValueError if they do not
        fill their ranges.
        """
        sizes = sizes.astype(np.int64)
        after = np.cumsum(sizes + SIZE_BYTES)  # where each would end if there were nothing between the ranges
        range_ends = after[np.cumsum(counts) - 1]
        lengths = np.diff(range_ends, prepend=0)
        if not np.array_equal(lengths, ends - begins):
            raise ValueError("the sizes of the bodies do not fit")
        shifts = np.repeat(ends - range_ends, counts)
        return cls(buffer, after - sizes + shifts, sizes)

    @classmethod
    def unread(cls, count: int) -> Payload:
        """Return the payload of messages whose bodies no one uses: empty ones."""
        nothing = np.zeros(count, dtype=np.int64)
        return cls(pa.py_buffer(b""), nothing, nothing)

    @classmethod
    def of_array(cls, array: pa.Array) -> Payload:
        """Return the values of a binary or string array without nulls."""
        _, offsets, values = array.buffers()
        end = array.offset + len(array) + 1
        own = np.frombuffer(offsets, dtype=np.int32)[array.offset : end]
        bounds = own.astype(np.int64)
        if values is None:
            values = pa.py_buffer(b"")
        return cls(values, bounds[:-1], np.diff(bounds))

    def __len__(self) -> int:
        return len(self.starts)

    def bytes_of(self, low: int, high: int) -> int:
        """Return the size of bodies `low` to `high` (not included)."""
        return int(self.sizes[low:high].sum())

    def cuts(self, most_messages: int, most_bytes: int) -> Ranges:
        """Yield bounds of MPUBs of a limited number of messages and bytes, in order; a larger message is alone."""
        return runs(np.cumsum(self.sizes + SIZE_BYTES), most_bytes - SIZE_BYTES, most_messages)

    def take(self, which: Any) -> Payload:
        """Return the bodies of a slice or a mask."""
        return Payload(self.buffer, self.starts[which], self.sizes[which])

    def array(self) -> pa.Array:
        """Return a pyarrow.BinaryArray; it is a copy if there is something between the bodies."""
        starts = self.starts
        if not len(starts):
            return pa.array([], pa.binary())
        ends = starts + self.sizes
        base = int(starts[0])
        buffer = self.buffer.slice(base, int(ends[-1]) - base)
        if np.array_equal(starts[1:], ends[:-1]):
            return binary_array(np.append(starts, ends[-1]) - base, buffer)
        # An array of the bodies and of what is between them, of which every second value is taken.
        bounds = np.stack((starts, ends), axis=1).ravel() - base
        even = numbers_array(np.arange(0, len(bounds), 2), pa.int32())
        return binary_array(bounds, buffer).take(even)

    def mpub_pieces(self, low: int, high: int) -> list[Any]:
        """Return the body of an MPUB of bodies `low` to `high` (not included), in pieces to be joined: their number in
        4 bytes, and each behind its size.
        """
        count = high - low
        pieces: list[Any] = [count.to_bytes(SIZE_BYTES, "big")]
        if count:
            bodies = self.take(slice(low, high))
            sizes = pa.py_buffer(bodies.sizes.astype(">u4"))
            heads = _equally_long(sizes, SIZE_BYTES, count, text=False)
            joined = pc.binary_join_element_wise(heads, bodies.array(), pa.scalar(b"", pa.binary()))
            pieces.append(joined.buffers()[2])  # the values, one behind the other
        return pieces


def published_payload(
    data: bytes, begins: Numbers, ends: Numbers, counts: Numbers, strides: Numbers
) -> Payload:
    """Return the bodies of published batches.

    data            of a file, with the batches in it
    begins, ends    of the body of each batch
    counts, strides of each; see `nsqd_py.protocol.batch.Batch`
    """
    strides = np.where(counts == 1, ends - begins, strides)
    first_starts = np.repeat(begins + SIZE_BYTES, counts)
    starts = first_starts + index_in_records(counts) * np.repeat(strides, counts)
    sizes = np.repeat(strides - SIZE_BYTES, counts)
    batches = np.stack((begins, ends, counts, np.cumsum(counts)), axis=1)
    has_other_sizes = strides == 0
    for begin, end, count, high in batches[has_other_sizes].tolist():
        bounds = begin + _starts(data[begin:end], count)
        messages = slice(high - count, high)
        starts[messages] = bounds[:-1]
        sizes[messages] = np.diff(bounds) - SIZE_BYTES
    return Payload(pa.py_buffer(data), starts, sizes)


def _starts(body: bytes, count: int) -> Numbers:
    """Return where each message of a batch begins, and would behind the last, by its sizes: 100 ns a message."""
    try:
        starts = Batch(0, 0, 0, 0, count, 0, body).starts
    except (struct.error, OverflowError):
        starts = [0]
    if starts[-1] != len(body) + SIZE_BYTES:
        raise ArchiveError(
            "a record has a right checksum, but its sizes do not fit: no nsqd of ours wrote it"
        )
    return np.array(starts, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of a topic, channel and file, in columns of equal length, in order of `positions`.

    None stands where the format does not know; also for the channel, if there was none.

    raw_ids  numbers of 64 bits; n x 16 bytes; or a StringArray. `ids` makes text of them
    """

    topic: str
    channel: str | None
    file: str
    positions: Numbers
    payload: Payload
    timestamps_ns: Numbers | None = None
    attempts: Numbers | None = None
    raw_ids: Any = None
    nsqds: Nsqds = None

    @property
    def count(self) -> int:
        return len(self.positions)

    @property
    def bodies(self) -> pa.Array:
        """The bodies as a BinaryArray, made when asked for."""
        return self.payload.array()

    @property
    def ids(self) -> pa.Array | None:
        """The ids as a StringArray, made when asked for."""
        ids = self.raw_ids
        if not isinstance(ids, np.ndarray):
            return ids
        if ids.ndim == 1:
            return hex_ids(ids)
        return stored_ids(ids)

    @property
    def timestamps_us(self) -> Numbers | None:
        if self.timestamps_ns is None:
            return None
        return self.timestamps_ns // 1000

    def arrow(self, names: Iterable[str] = _ATTRIBUTES) -> pa.RecordBatch:
        """Return the columns of `nsq_spark.schema` with these names, in this order.

        Only these are made: all ten take 83 ns a message, mostly for the bodies, `position` alone 0.3 ns.
        """
        return pa.RecordBatch.from_pydict({name: self.column(name) for name in names})

    def column(self, name: str) -> pa.Array:
        """Return one column of `nsq_spark.schema`; null where it is not known."""
        if name == TEXT:
            # Not copied, and not checked, as when Spark casts bytes to text.
            return self.bodies.view(pa.string())
        values = getattr(self, _ATTRIBUTES[name])
        kind = arrow_schema().field(name).type
        if values is None:
            return pa.nulls(self.count, kind)
        if isinstance(values, str):
            return constant(values, self.count)
        if isinstance(values, np.ndarray):
            return numbers_array(values, kind)
        return values.cast(kind)

    def filter(self, mask: Any) -> Chunk:
        """Return the messages for which the mask, an array of numpy, is true."""
        if mask.all():
            return self
        return self._part(mask)

    def slice(self, low: int, high: int) -> Chunk:
        """Return messages `low` to `high` (not included)."""
        if low <= 0 and high >= self.count:
            return self
        return self._part(slice(low, high))

    def _part(self, which: Any) -> Chunk:
        def part(column: Any) -> Any:
            if isinstance(column, pa.Array):
                if isinstance(which, slice):
                    return column[which]
                return column.filter(pa.array(which))
            if column is None or isinstance(column, str):
                return column
            return column[which]

        changed = {
            name: part(getattr(self, name))
            for name in ("positions", "timestamps_ns", "attempts", "raw_ids", "nsqds")
        }
        return replace(self, payload=self.payload.take(which), **changed)

    def requested(self, requested: Requested) -> Chunk:
        """Return the messages of a requested time."""
        if not requested.has_range:
            return self
        times = self.timestamps_ns
        if times is None:
            return self.slice(0, 0)
        return self.filter(requested.overlaps(times, times))

    def bounded(self) -> Chunks:
        """Yield the same messages in chunks of at most 50,000 messages and 4 MiB; a larger message is alone."""
        for low, high in runs(np.cumsum(self.payload.sizes), MOST_BYTES, MOST_MESSAGES):
            yield self.slice(low, high)


Chunks: TypeAlias = Iterator[Chunk]
