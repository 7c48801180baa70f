"""The bodies of a chunk, in one piece of memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.columns import Numbers, binary_array, index_in_records, runs
from nsq_spark.archive.damage import ArchiveError
from nsqd_py.batch import SIZE_BYTES

_read_size = Struct(">I").unpack_from


class Payload:
    """Body i is the `sizes[i]` bytes from `starts[i]` on; bodies are in order and do not overlap.

    buffer  a pyarrow buffer, which is shared and not copied
    """

    def __init__(self, buffer: Any, starts: Numbers, sizes: Numbers) -> None:
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def of_stretches(cls, buffer: Any, begins: Numbers, ends: Numbers, counts: Numbers, sizes: Numbers) -> Payload:
        """Return the payload of bodies behind their sizes, in stretches of `counts` messages. Raises ValueError if they do not
        fill their stretches.
        """
        sizes = sizes.astype(np.int64)
        after = np.cumsum(sizes + SIZE_BYTES)  # where each would end if there were nothing between the stretches
        stretch_ends = after[np.cumsum(counts) - 1]
        lengths = np.diff(stretch_ends, prepend=0)
        if not np.array_equal(lengths, ends - begins):
            raise ValueError("the sizes of the bodies do not fit")
        return cls(buffer, after - sizes + np.repeat(ends - stretch_ends, counts), sizes)

    @classmethod
    def of_array(cls, array: pa.Array) -> Payload:
        """Return the values of a binary or string array without nulls."""
        _, offsets, values = array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        return cls(values if values is not None else pa.py_buffer(b""), bounds[:-1], np.diff(bounds))

    @property
    def ends(self) -> Numbers:
        return self.starts + self.sizes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size_bytes(self) -> int:
        return self.bytes_of(0, len(self))

    def bytes_of(self, low: int, high: int) -> int:
        """Return the size of bodies `low` to `high` (not included)."""
        if low == high:
            return 0
        up_to = self.bytes_up_to
        return int(up_to[high - 1]) - (int(up_to[low - 1]) if low else 0)

    @cached_property
    def bytes_up_to(self) -> Numbers:
        """The sizes of the bodies up to each, and with it."""
        return np.cumsum(self.sizes)

    def cuts(self, most_messages: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield bounds of MPUBs of at most so many messages and bytes, in order; a larger message is alone."""
        ends = self.bytes_up_to + SIZE_BYTES * np.arange(1, len(self) + 1)
        return runs((ends, most_bytes - SIZE_BYTES), most=most_messages)

    def take(self, which: Any) -> Payload:
        """Return the bodies of a slice or a mask."""
        return Payload(self.buffer, self.starts[which], self.sizes[which])

    def array(self) -> pa.Array:
        """Return a pyarrow.BinaryArray; it is a copy if there is something between the bodies."""
        starts, ends, count = self.starts, self.ends, len(self)
        if not count:
            return pa.array([], pa.binary())
        base = int(starts[0])
        buffer = self.buffer.slice(base, int(ends[-1]) - base)
        if np.array_equal(starts[1:], ends[:-1]):
            return binary_array(count, np.append(starts, ends[-1]) - base, buffer)
        # An array of the bodies and of what is between them, of which every second value is taken.
        bounds = np.empty(2 * count, dtype=np.int32)
        bounds[0::2] = starts - base
        bounds[1::2] = ends - base
        return binary_array(2 * count - 1, bounds, buffer).take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def mpub_pieces(self, low: int, high: int) -> list[Any]:
        """Return the body of an MPUB of bodies `low` to `high` (not included), in pieces to be joined: their number in
        4 bytes, and each behind its size.
        """
        count = (high - low).to_bytes(SIZE_BYTES, "big")
        return [count, _values(self.take(slice(low, high))._with_sizes())] if low < high else [count]

    def _with_sizes(self) -> pa.Array:
        count = len(self)
        sizes = pa.py_buffer(self.sizes.astype(">u4"))
        heads = binary_array(count, np.arange(0, SIZE_BYTES * (count + 1), SIZE_BYTES), sizes)
        return pc.binary_join_element_wise(heads, self.array(), pa.scalar(b"", pa.binary()))


def published_payload(data: bytes, begins: Numbers, ends: Numbers, counts: Numbers, strides: Numbers) -> Payload:
    """Return the bodies of published batches.

    data            of a file, with the batches in it
    begins, ends    of the body of each batch
    counts, strides of each; see `nsqd_py.batch.Batch`
    """
    strides = np.where(counts == 1, ends - begins, strides)
    starts = np.repeat(begins + SIZE_BYTES, counts) + index_in_records(counts) * np.repeat(strides, counts)
    sizes = np.repeat(strides - SIZE_BYTES, counts)
    first = np.append(0, np.cumsum(counts))
    for batch in np.flatnonzero(strides == 0).tolist():
        low, high = (int(bound) for bound in first[batch : batch + 2])
        bounds = _walked(data, int(begins[batch]), int(ends[batch]), high - low)
        starts[low:high] = bounds[:-1]
        sizes[low:high] = np.diff(bounds) - SIZE_BYTES
    return Payload(pa.py_buffer(data), starts, sizes)


def _walked(data: bytes, position: int, end: int, count: int) -> Numbers:
    """Return where each message of a batch begins, and would behind the last, by its sizes: 100 ns a message."""
    starts: list[int] = []
    while position < end and len(starts) < count:
        starts.append(position + SIZE_BYTES)
        position += _read_size(data, position)[0] + SIZE_BYTES
    if position != end or len(starts) != count:
        raise ArchiveError("a record has a right checksum, but its sizes do not fit: no nsqd of ours wrote it")
    return np.array([*starts, end + SIZE_BYTES], dtype=np.int64)


def joined(payloads: list[Payload]) -> Payload:
    """Return several payloads as one, which is a copy."""
    shift = 0
    buffers, starts = [], []
    for payload in payloads:
        low = int(payload.starts[0])
        buffers.append(payload.buffer.slice(low, int(payload.ends[-1]) - low))
        starts.append(payload.starts - low + shift)
        shift += buffers[-1].size
    sizes = np.concatenate([payload.sizes for payload in payloads])
    return Payload(pa.py_buffer(b"".join(buffers)), np.concatenate(starts), sizes)


def _values(array: pa.Array) -> Any:
    """Return the values of an array that begins at offset 0, one behind the other."""
    _, offsets, values = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)
    return values.slice(int(bounds[0]), int(bounds[len(array)] - bounds[0]))
