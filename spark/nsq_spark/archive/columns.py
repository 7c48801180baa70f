"""Columns of numpy and Arrow: a few calls for a column, however many messages there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]

ID_BYTES = 16
_INDEX_BITS = 20
_ASCII_END = 0x80
_SMALLEST_CONSTANT = 1024
# The two characters of each byte, as one number: half as many look-ups as one for each character.
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)


# ---- Arrow columns


def binary_array(count: int, offsets: Numbers, values: Any, *, text: bool = False) -> pa.Array:
    """Return the values between each of `count + 1` offsets and the next; `values` is a buffer, which is not copied."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32, copy=False)), values]
    return pa.Array.from_buffers(pa.string() if text else pa.binary(), count, buffers)


def hex_ids(numbers: Numbers) -> pa.Array:
    """Return ids as 16 hex characters: 10 ns each."""
    octets = numbers.astype(">u8").view(np.uint8)
    return _fixed_text(pa.py_buffer(_HEX[octets]), len(numbers))


def stored_ids(octets: Numbers) -> pa.Array:
    """Return the texts of ids of 16 bytes each, in an array of n x 16. What is not ASCII is escaped."""
    if octets.size and octets.max() >= _ASCII_END:
        return pa.array([row.tobytes().decode("ascii", "backslashreplace") for row in octets], pa.string())
    return _fixed_text(pa.py_buffer(np.ascontiguousarray(octets)), len(octets))


def _fixed_text(values: Any, count: int) -> pa.Array:
    return binary_array(count, np.arange(0, ID_BYTES * (count + 1), ID_BYTES), values, text=True)


def timestamps_us(timestamps_ns: Numbers) -> pa.Array:
    """Return timestamps in Spark's type."""
    return pa.array(timestamps_ns // 1000, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def constant(text: str | None, count: int) -> pa.Array:
    """Return an array of one text: a slice of a cached one, since all chunks of a file need the same."""
    room = max(_SMALLEST_CONSTANT, 1 << (count - 1).bit_length()) if count else 0
    return _constant(text, room).slice(0, count)


@lru_cache(maxsize=32)
def _constant(text: str | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if text is None else pa.repeat(pa.scalar(text, pa.string()), count)


# ---- structures and runs of values


def heads_at(data: bytes, places: Any, head: np.dtype[Any]) -> Numbers:
    """Return the structures at some places of `data`, as one array: 20 ns each."""
    room = len(data) - head.itemsize + 1
    if room <= 0 or not len(places):
        return np.zeros(0, head)
    windows: Numbers = np.ndarray((room,), head, data, strides=(1,))  # one begins at every byte, without a copy
    heads: Numbers = windows[places]
    return heads


def runs(*limits: tuple[Numbers, int], most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield bounds of neighbours that keep all limits together; a value that exceeds a limit by itself is alone.

    A limit has the sum of the values up to each and with it, and the greatest sum of a run; `most` is the greatest
    number of values in a run.
    """
    count = len(limits[0][0])
    low = 0
    while low < count:
        high = count if most is None else min(count, low + most)
        for sums, greatest in limits:
            room = greatest + (int(sums[low - 1]) if low else 0)
            if sums[high - 1] > room:
                high = int(sums.searchsorted(room, "right"))
        high = max(low + 1, high)
        yield low, high
        low = high


def equal_runs(changes: Numbers, count: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of neighbours without a change; `changes` is true where value i + 1 is unlike value i."""
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    return ((low, high) for low, high in zip(bounds, bounds[1:], strict=False) if low < high)


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
    return index if len(counts) == 1 else index - np.repeat(np.cumsum(counts) - counts, counts)
