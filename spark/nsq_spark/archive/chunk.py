"""A chunk: messages of one topic in columns, which readers give and everybody takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.columns import Numbers, constant, hex_ids, stored_ids, timestamps_us
from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.payload import Payload, joined
from nsq_spark.archive.wanted import Wanted
from nsq_spark.schema import arrow_schema

MOST_MESSAGES = 50_000
MOST_BYTES = 4 * 1024 * 1024
# Not put together with others: to copy it costs more than to take it as it is.
_LARGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """Where messages are from; None where nobody knows, or where there was no channel."""

    topic: str
    channel: str | None
    file: str


# Names of the nsqd of each message: one for all, none, or a dictionary array.
Nsqds: TypeAlias = str | pa.DictionaryArray | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of equal length, in order of `positions`; None where the format does not know.

    raw_ids  numbers of 64 bits; n x 16 bytes; or a StringArray. `ids` makes text of them
    """

    origin: Origin
    positions: Numbers
    payload: Payload
    timestamps_ns: Numbers | None = None
    attempts: Numbers | None = None
    raw_ids: Any = None
    nsqds: Nsqds = None

    # ---- what there is

    @property
    def topic(self) -> str:
        return self.origin.topic

    @property
    def channel(self) -> str | None:
        return self.origin.channel

    @property
    def nsqd(self) -> str | None:
        """The nsqd of all of them; None where they came from several."""
        return self.nsqds if isinstance(self.nsqds, str) else None

    @property
    def file(self) -> str:
        return self.origin.file

    @property
    def count(self) -> int:
        return len(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def size_bytes(self) -> int:
        """Of the bodies."""
        return self.payload.size_bytes

    @property
    def bodies(self) -> pa.Array:
        """A BinaryArray, made when it is asked for."""
        return self.payload.array()

    @property
    def ids(self) -> pa.Array | None:
        """A StringArray, made when it is asked for."""
        ids = self.raw_ids
        if ids is None or isinstance(ids, pa.Array):
            return ids
        return hex_ids(ids) if ids.ndim == 1 else stored_ids(ids)

    def mpub_body(self) -> bytes:
        """The body of an MPUB with all of them."""
        return self.payload.mpub_body()

    def mpub_pieces(self, low: int, high: int) -> list[Any]:
        """The same of messages `low` to `high` (not included), in pieces to be joined. What is stored in that form is
        not copied.
        """
        return self.payload.mpub_pieces(low, high)

    def arrow(self, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the columns of `nsq_spark.schema` with these names, in this order; None: all.

        Only these are made: all ten take 83 ns a message, mostly for the bodies, `position` alone 0.3 ns.
        """
        schema = arrow_schema()
        fields = list(schema) if names is None else [schema.field(name) for name in names]
        return pa.RecordBatch.from_arrays([self.column(field.name) for field in fields], schema=pa.schema(fields))

    def column(self, name: str) -> pa.Array:
        """Return one column of `nsq_spark.schema`; null where it is not known."""
        column = _COLUMNS[name](self)
        return pa.nulls(self.count, arrow_schema().field(name).type) if column is None else column

    def _nsqd_column(self) -> pa.Array:
        return self.nsqds.cast(pa.string()) if isinstance(self.nsqds, pa.Array) else constant(self.nsqds, self.count)

    # ---- parts of it

    def filter(self, mask: Any) -> Chunk:
        """Those for which the mask is true: an array of booleans, numpy's or pyarrow's; null is false."""
        if isinstance(mask, (pa.Array, pa.ChunkedArray)):
            mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        if mask.all():
            return self
        return self._part(mask, lambda array: array.filter(pa.array(mask)))

    def slice(self, low: int, high: int) -> Chunk:
        """Messages `low` to `high` (not included)."""
        if low <= 0 and high >= self.count:
            return self
        part = slice(low, high)
        return self._part(part, lambda array: array[part])

    def _part(self, which: Any, of_arrow: Any) -> Chunk:
        ids, nsqds = self.raw_ids, self.nsqds
        return Chunk(
            self.origin,
            self.positions[which],
            self.payload.take(which),
            None if self.timestamps_ns is None else self.timestamps_ns[which],
            None if self.attempts is None else self.attempts[which],
            of_arrow(ids) if isinstance(ids, pa.Array) else None if ids is None else ids[which],
            of_arrow(nsqds) if isinstance(nsqds, pa.Array) else nsqds,
        )

    def wanted(self, wanted: Wanted, after: int = -1) -> Chunk:
        """Those of a wanted time, at positions above `after`."""
        chunk = self
        if after >= 0:
            chunk = chunk.filter(chunk.positions > after)
        if wanted.has_range:
            times = chunk.timestamps_ns
            chunk = chunk.slice(0, 0) if times is None else chunk.filter(in_range(times, wanted))
        return chunk

    def bounded(self) -> Iterator[Chunk]:
        """The same in chunks of at most 50,000 messages and 4 MiB; a larger message is alone."""
        if self.count <= MOST_MESSAGES and self.payload.size_bytes <= MOST_BYTES:
            yield self
            return
        ends = np.cumsum(self.payload.sizes)
        low = 0
        while low < self.count:
            before = int(ends[low - 1]) if low else 0
            room = int(np.searchsorted(ends, before + MOST_BYTES, "right"))
            high = min(max(low + 1, room), low + MOST_MESSAGES)
            yield self.slice(low, high)
            low = high


_COLUMNS: dict[str, Callable[[Chunk], pa.Array | None]] = {
    "topic": lambda chunk: constant(chunk.topic, chunk.count),
    "channel": lambda chunk: constant(chunk.channel, chunk.count),
    "timestamp": lambda chunk: None if chunk.timestamps_ns is None else timestamps_us(chunk.timestamps_ns),
    "timestamp_ns": lambda chunk: None if chunk.timestamps_ns is None else pa.array(chunk.timestamps_ns, pa.int64()),
    "id": lambda chunk: chunk.ids,
    "attempts": lambda chunk: None if chunk.attempts is None else pa.array(chunk.attempts.astype(np.int32, copy=False)),
    "body": lambda chunk: chunk.bodies,
    "nsqd": lambda chunk: chunk._nsqd_column(),
    "file": lambda chunk: constant(chunk.file, chunk.count),
    "position": lambda chunk: pa.array(chunk.positions, pa.int64()),
}


def in_range(times: Numbers, wanted: Wanted) -> Numbers:
    mask = np.ones(len(times), dtype=bool)
    if wanted.start_ns is not None:
        mask &= times >= wanted.start_ns
    if wanted.end_ns is not None:
        mask &= times < wanted.end_ns
    return mask


# ---- small ones together


def gathered(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same messages in the same order, with neighbours put together that are small and alike.

    What was read before an error comes before it.
    """
    waiting: list[Chunk] = []
    count = size_bytes = 0
    try:
        for chunk in chunks:
            own_bytes = chunk.size_bytes
            count += chunk.count
            size_bytes += own_bytes
            is_small = own_bytes < _LARGE_BYTES and count <= MOST_MESSAGES and size_bytes <= MOST_BYTES
            if waiting and not (is_small and _alike(waiting[0], chunk)):
                yield _joined(waiting)
                waiting, count, size_bytes = [], chunk.count, own_bytes
            waiting.append(chunk)
    except ArchiveError:
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _shape(chunk: Chunk) -> tuple[object, ...]:
    ids = chunk.raw_ids
    kind = "arrow" if isinstance(ids, pa.Array) else None if ids is None else ids.ndim
    known = (chunk.timestamps_ns is None, chunk.attempts is None, chunk.payload.is_sized)
    return chunk.origin, kind, known


def _alike(one: Chunk, other: Chunk) -> bool:
    return one.origin is other.origin or _shape(one) == _shape(other)


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    ids = [chunk.raw_ids for chunk in chunks]
    return Chunk(
        chunks[0].origin,
        np.concatenate([chunk.positions for chunk in chunks]),
        joined([chunk.payload for chunk in chunks]),
        _concatenated([chunk.timestamps_ns for chunk in chunks]),
        _concatenated([chunk.attempts for chunk in chunks]),
        pa.concat_arrays(ids) if isinstance(ids[0], pa.Array) else _concatenated(ids),
        _joined_nsqds(chunks),
    )


def _concatenated(columns: list[Any]) -> Any:
    return None if columns[0] is None else np.concatenate(columns)


def _joined_nsqds(chunks: list[Chunk]) -> Nsqds:
    names = [chunk.nsqds for chunk in chunks]
    if all(not isinstance(name, pa.Array) and name == names[0] for name in names):
        return names[0]
    columns = [chunk._nsqd_column() for chunk in chunks]
    names_of_all: pa.DictionaryArray = pa.concat_arrays(columns).dictionary_encode()
    return names_of_all
