"""The bodies of a chunk, in one piece of memory."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsqd_py.batch import SIZE_BYTES
from spark.archive.columns import Numbers, binary_array
from spark.archive.errors import ArchiveError

_read_size = Struct(">I").unpack_from


class Payload:
    """Body i is the `sizes[i]` bytes from `starts[i]` on; they lie in order and do not overlap.

    buffer    a pyarrow buffer, which is shared and not copied
    is_sized  whether each body stands behind its size, 4 bytes big-endian, as an MPUB sends it
    """

    __slots__ = ("_bounds", "buffer", "is_sized")

    def __init__(self, buffer: Any, starts: Numbers, sizes: Numbers, *, is_sized: bool) -> None:
        self.buffer = buffer
        self.is_sized = is_sized
        self._bounds: tuple[Numbers, Numbers] | None = (starts, sizes)

    @classmethod
    def of_sized(cls, buffer: Any, sizes: Numbers) -> Payload:
        """Bodies behind their sizes, one behind the other. Raises ValueError where they do not fill the buffer."""
        sizes = sizes.astype(np.int64)
        ends = np.cumsum(sizes + SIZE_BYTES)
        if (int(ends[-1]) if len(ends) else 0) != buffer.size:
            raise ValueError("the sizes of the bodies do not fit")
        return cls(buffer, ends - sizes, sizes, is_sized=True)

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
        return int(self.sizes.sum())

    def take(self, which: Any) -> Payload:
        """A part of it, by a slice or a mask."""
        return Payload(self.buffer, self.starts[which], self.sizes[which], is_sized=self.is_sized)

    # ---- what is made of it

    def array(self) -> pa.Array:
        """A pyarrow.BinaryArray; copies the bodies where something stands between them."""
        return self._cut(self.starts, self.ends)

    def sized_bodies(self) -> memoryview | None:
        """The bodies behind their sizes, where they are stored so in one stretch."""
        if not (self.is_sized and len(self)):
            return None
        starts, ends = self.starts - SIZE_BYTES, self.ends
        if not np.array_equal(starts[1:], ends[:-1]):
            return None
        return memoryview(self.buffer)[int(starts[0]) : int(ends[-1])]

    def mpub_body(self) -> bytes:
        """The body of an MPUB: the number of messages in 4 bytes, then each behind its size."""
        count = len(self).to_bytes(SIZE_BYTES, "big")
        if not len(self):
            return count
        if not self.is_sized:
            return b"".join((count, _values(self._with_sizes())))
        bodies = self.sized_bodies()
        return b"".join((count, _values(self._cut(self.starts - SIZE_BYTES, self.ends)) if bodies is None else bodies))

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

    __slots__ = ("_batches", "_count", "_data")

    def __init__(self, data: bytes, begins: Numbers, ends: Numbers, counts: Numbers, strides: Numbers) -> None:
        self.buffer = pa.py_buffer(data)
        self.is_sized = True
        self._bounds = None
        self._data = data
        self._count = int(counts.sum())
        self._batches = (begins, ends, counts, strides)

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        begins, ends, _, _ = self._batches
        return int((ends - begins).sum()) - SIZE_BYTES * self._count

    def sized_bodies(self) -> memoryview | None:
        begins, ends, counts, _ = self._batches
        if len(counts) == 1:
            return memoryview(self._data)[int(begins[0]) : int(ends[0])]
        # Those that are alone have their places known at once; others are joined without asking for them.
        return super().sized_bodies() if len(counts) == self._count else None

    def mpub_body(self) -> bytes:
        begins, ends, counts, _ = self._batches
        if len(counts) == self._count:  # each alone: it takes fewer calls to cut them out by their bounds
            return super().mpub_body()
        view = memoryview(self._data)
        batches = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return b"".join((self._count.to_bytes(SIZE_BYTES, "big"), *batches))

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
