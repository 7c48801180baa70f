"""The bodies of a chunk, in one piece of memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.columns import Numbers, binary_array
from nsq_spark.archive.damage import ArchiveError
from nsqd_py.batch import SIZE_BYTES

# Where there is a gap in so many bodies at least, they are cut out by stretches, else one by one.
_FEW_GAPS = 8
_read_size = Struct(">I").unpack_from


class Payload:
    """Body i is the `sizes[i]` bytes from `starts[i]` on; they lie in order and do not overlap.

    buffer    a pyarrow buffer, which is shared and not copied
    is_sized  whether each body stands behind its size, 4 bytes big-endian, as an MPUB sends it
    """

    __slots__ = ("_bounds", "_bytes_up_to", "_gaps", "buffer", "is_sized")

    def __init__(self, buffer: Any, starts: Numbers, sizes: Numbers, *, is_sized: bool) -> None:
        self.buffer = buffer
        self.is_sized = is_sized
        self._bounds: tuple[Numbers, Numbers] | None = (starts, sizes)
        self._bytes_up_to: Numbers | None = None
        self._gaps: list[int] | None = None

    @classmethod
    def of_stretches(cls, buffer: Any, begins: Numbers, ends: Numbers, counts: Numbers, sizes: Numbers) -> Payload:
        """Bodies behind their sizes, in stretches of so many messages each. Raises ValueError where they do not fill
        their stretches.
        """
        sizes = sizes.astype(np.int64)
        after = np.cumsum(sizes + SIZE_BYTES)  # where each would end if there were nothing between the stretches
        stretch_ends = after[np.cumsum(counts) - 1]
        lengths = np.diff(stretch_ends, prepend=0)
        if not np.array_equal(lengths, ends - begins):
            raise ValueError("the sizes of the bodies do not fit")
        return cls(buffer, after - sizes + np.repeat(ends - stretch_ends, counts), sizes, is_sized=True)

    @classmethod
    def of_array(cls, array: pa.Array) -> Payload:
        """The values of a binary or string array, none of which is null."""
        _, offsets, values = array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        return cls(values if values is not None else pa.py_buffer(b""), bounds[:-1], np.diff(bounds), is_sized=False)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def starts(self) -> Numbers:
        return self._known()[0]

    @property
    def sizes(self) -> Numbers:
        return self._known()[1]

    def _known(self) -> tuple[Numbers, Numbers]:
        if self._bounds is None:
            self._bounds = self._find()
        return self._bounds

    def _find(self) -> tuple[Numbers, Numbers]:
        raise NotImplementedError  # a payload of this class is made with them

    @property
    def ends(self) -> Numbers:
        return self.starts + self.sizes

    @property
    def size_bytes(self) -> int:
        """Of the bodies."""
        return self.bytes_of(0, len(self))

    def bytes_of(self, low: int, high: int) -> int:
        """Of bodies `low` to `high` (not included)."""
        if low == high:
            return 0
        up_to = self.bytes_up_to
        return int(up_to[high - 1]) - (int(up_to[low - 1]) if low else 0)

    @property
    def bytes_up_to(self) -> Numbers:
        """Of the bodies up to each, and with it."""
        if self._bytes_up_to is None:
            self._bytes_up_to = np.cumsum(self.sizes)
        return self._bytes_up_to

    def cuts(self, most_messages: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        """Bounds of MPUBs of so many messages and bytes at most, in order; a larger message is alone."""
        count = len(self)
        ends = self.bytes_up_to + SIZE_BYTES * np.arange(1, count + 1)
        low = before = 0
        while low < count:
            room = int(np.searchsorted(ends, before + most_bytes - SIZE_BYTES, "right"))
            high = min(max(low + 1, room), low + most_messages, count)
            yield low, high
            low, before = high, int(ends[high - 1])

    def take(self, which: Any) -> Payload:
        """A part of it, by a slice or a mask."""
        return Payload(self.buffer, self.starts[which], self.sizes[which], is_sized=self.is_sized)

    # ---- what is made of it

    def array(self) -> pa.Array:
        """A pyarrow.BinaryArray; copies the bodies where something stands between them."""
        return self._cut(self.starts, self.ends)

    def mpub_body(self) -> bytes:
        """The body of an MPUB: the number of messages in 4 bytes, then each behind its size."""
        return b"".join(self.mpub_pieces(0, len(self)))

    def mpub_pieces(self, low: int, high: int) -> list[Any]:
        """The same of bodies `low` to `high` (not included), in pieces to be joined: stretches of the buffer where
        it can be, which are not copied.
        """
        count = (high - low).to_bytes(SIZE_BYTES, "big")
        if low == high:
            return [count]
        if not self.is_sized:
            return [count, _values(self.take(slice(low, high))._with_sizes())]
        bounds = self._stretches(low, high)
        if len(bounds) * _FEW_GAPS > high - low + 2 * _FEW_GAPS:
            part = self.take(slice(low, high))
            return [count, _values(part._cut(part.starts - SIZE_BYTES, part.ends))]
        view, (starts, sizes) = memoryview(self.buffer), self._known()
        lasts = [bound - 1 for bound in bounds[1:]]
        begins = [int(starts[bound]) - SIZE_BYTES for bound in bounds[:-1]]
        ends = [int(starts[last]) + int(sizes[last]) for last in lasts]
        return [count, *(view[begin:end] for begin, end in zip(begins, ends, strict=True))]

    def _stretches(self, low: int, high: int) -> list[int]:
        """Bounds of stretches without gaps between `low` and `high`, both included."""
        if self._gaps is None:  # bodies that do not follow the one before them at once
            self._gaps = (np.flatnonzero(self.starts[1:] - SIZE_BYTES != self.ends[:-1]) + 1).tolist()
        gaps = self._gaps
        return [low, *gaps[bisect_right(gaps, low) : bisect_left(gaps, high)], high]

    def _with_sizes(self) -> pa.Array:
        count = len(self)
        sizes = pa.py_buffer(self.sizes.astype(">u4"))
        heads = binary_array(count, np.arange(0, SIZE_BYTES * (count + 1), SIZE_BYTES), sizes)
        return pc.binary_join_element_wise(heads, self.array(), pa.scalar(b"", pa.binary()))

    def _cut(self, starts: Numbers, ends: Numbers) -> pa.Array:
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        base = int(starts[0])
        buffer = self.buffer.slice(base, int(ends[-1]) - base)
        if np.array_equal(starts[1:], ends[:-1]):
            return binary_array(count, np.append(starts, ends[-1]) - base, buffer)
        # Every body and everything between two of them is a value; then every second one is taken.
        bounds = np.empty(2 * count, dtype=np.int32)
        bounds[0::2] = starts - base
        bounds[1::2] = ends - base
        return binary_array(2 * count - 1, bounds, buffer).take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


class PublishedPayload(Payload):
    """The bodies of published batches, of which nobody knows yet where their messages are: to send all, nobody has to.

    data            of a file, with the batches in it
    begins, ends    of the body of each batch
    counts, strides of each; see `nsqd_py.batch.Batch`
    """

    __slots__ = ("_batches", "_bytes_to_batch", "_count", "_data", "_messages_to_batch")

    def __init__(self, data: bytes, begins: Numbers, ends: Numbers, counts: Numbers, strides: Numbers) -> None:
        self.buffer = pa.py_buffer(data)
        self.is_sized = True
        self._bounds = self._bytes_up_to = self._gaps = None
        self._data = data
        self._count = int(counts.sum())
        self._batches = (begins, ends, counts, strides)
        self._messages_to_batch = np.append(0, np.cumsum(counts))
        self._bytes_to_batch = np.append(0, np.cumsum(ends - begins))

    def __len__(self) -> int:
        return self._count

    def bytes_of(self, low: int, high: int) -> int:
        first, end = self._batches_of(low, high)
        if first < 0:
            return super().bytes_of(low, high)
        return int(self._bytes_to_batch[end] - self._bytes_to_batch[first]) - SIZE_BYTES * (high - low)

    def cuts(self, most_messages: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        """Between batches, unless one of them is too large."""
        messages, octets = self._messages_to_batch, self._bytes_to_batch
        room = most_bytes - SIZE_BYTES
        if np.diff(messages).max(initial=0) > most_messages or np.diff(octets).max(initial=0) > room:
            yield from super().cuts(most_messages, most_bytes)
            return
        batch = 0
        while batch + 1 < len(messages):
            by_bytes = np.searchsorted(octets, octets[batch] + room, "right")
            by_messages = np.searchsorted(messages, messages[batch] + most_messages, "right")
            after = int(min(by_bytes, by_messages)) - 1
            yield int(messages[batch]), int(messages[after])
            batch = after

    def mpub_pieces(self, low: int, high: int) -> list[Any]:
        first, end = self._batches_of(low, high)
        if first < 0 or end - first == high - low:  # each alone: it takes fewer calls to cut them out by their bounds
            return super().mpub_pieces(low, high)
        begins, ends, _, _ = self._batches
        view = memoryview(self._data)
        bounds = zip(begins[first:end].tolist(), ends[first:end].tolist(), strict=True)
        return [(high - low).to_bytes(SIZE_BYTES, "big"), *(view[begin:stop] for begin, stop in bounds)]

    def _batches_of(self, low: int, high: int) -> tuple[int, int]:
        """Those that messages `low` to `high` are all of; -1 where they are no whole batches."""
        messages = self._messages_to_batch
        first, end = np.searchsorted(messages, (low, high)).tolist()
        return (first, end) if messages[first] == low and messages[end] == high else (-1, -1)

    def _find(self) -> tuple[Numbers, Numbers]:
        begins, ends, counts, strides = self._batches
        is_alone = counts == 1
        strides = np.where(is_alone, ends - begins, strides)
        firsts = np.cumsum(counts) - counts
        index = np.arange(self._count, dtype=np.int64) - np.repeat(firsts, counts)
        starts = np.repeat(begins + SIZE_BYTES, counts) + index * np.repeat(strides, counts)
        sizes = np.repeat(strides - SIZE_BYTES, counts)
        for batch in np.flatnonzero(strides == 0).tolist():
            low, high = int(firsts[batch]), int(firsts[batch] + counts[batch])
            bounds = self._walked(int(begins[batch]), int(ends[batch]), high - low)
            starts[low:high] = bounds[:-1]
            sizes[low:high] = np.diff(bounds) - SIZE_BYTES
        return starts, sizes

    def _walked(self, begin: int, end: int, count: int) -> Numbers:
        """Where each message of a batch begins, and would behind the last: from size to size, 100 ns a message."""
        data, position = self._data, begin
        starts: list[int] = []
        while position < end and len(starts) < count:
            starts.append(position + SIZE_BYTES)
            position += _read_size(data, position)[0] + SIZE_BYTES
        if position != end or len(starts) != count:
            raise ArchiveError("a record has a right checksum, but its sizes do not fit: no nsqd of ours wrote it")
        return np.array([*starts, end + SIZE_BYTES], dtype=np.int64)


def joined(payloads: list[Payload]) -> Payload:
    """Several as one, which copies what they are in. All of them sized, or none."""
    shift = 0
    buffers, starts = [], []
    for payload in payloads:
        lead = SIZE_BYTES if payload.is_sized else 0
        low = int(payload.starts[0]) - lead
        buffers.append(payload.buffer.slice(low, int(payload.ends[-1]) - low))
        starts.append(payload.starts - low + shift)
        shift += buffers[-1].size
    sizes = np.concatenate([payload.sizes for payload in payloads])
    return Payload(pa.py_buffer(b"".join(buffers)), np.concatenate(starts), sizes, is_sized=payloads[0].is_sized)


def _values(array: pa.Array) -> Any:
    """The values of an array that begins at offset 0, one behind the other."""
    _, offsets, values = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)
    return values.slice(int(bounds[0]), int(bounds[len(array)] - bounds[0]))
