"""Files of records: archives (`framed`), and the topic log of nsqd, whose records are of kind `published`.

A log may belong to a running nsqd. Behind its last record there is space: zeros, or what is left of the messages
of an earlier file, with another salt; and the record that is being written at this moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from nsq_spark.archive import framed
from nsq_spark.archive.chunk import MOST_MESSAGES, Chunk, Origin, in_range
from nsq_spark.archive.columns import index_in_records, positions_of
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Format
from nsq_spark.archive.payload import PublishedPayload
from nsq_spark.archive.records import Records, Tail, Walk
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File
from nsq_spark.archive.wanted import Wanted
from nsqd_py.diskqueue.records import MESSAGES, PUBLISHED, RECORD_HEADER_BYTES


def is_end(tail: Tail) -> bool:
    """Nsqd cuts a file to its records when it ends one: only the last file of a topic has a tail.

    There, a record that has only space behind it is being written, or was when nsqd was killed. Space is zeros, and in
    a reused file whatever the earlier file held. A record that reaches to the end of the file was whole once, or is
    cut off.
    """
    written_end = tail.written_end()
    if written_end == tail.position:
        return True
    if not tail.is_live:
        return False
    if tail.has_grown():
        return True
    if tail.position + RECORD_HEADER_BYTES > tail.size:
        return False
    header = tail.record_header()
    record_end = tail.position + (RECORD_HEADER_BYTES if header is None else header.record_bytes)
    if not tail.header.is_reused:
        return written_end <= record_end < tail.size
    return header is None or header.first_seq != tail.expected_seq or record_end < tail.size


class PublishedRecords:
    """Decodes records of one file."""

    def __init__(self, path: str, topic: str, wanted: Wanted) -> None:
        self._origin = Origin(topic, None, path)
        self._wanted = wanted

    def chunks(self, records: Records, first: int, end: int) -> Iterator[Chunk]:
        """The messages of records `first` to `end` (not included) whose time is wanted."""
        headers = records.headers[first:end]
        places = np.array(records.places[first:end], dtype=np.int64)
        if self._wanted.has_range:
            is_wanted = in_range(headers["timestamp_ns"], self._wanted)
            headers, places = headers[is_wanted], places[is_wanted]
        for low, high in _groups(headers["count"].astype(np.int64)):
            yield self._chunk(records, headers[low:high], places[low:high])

    def _chunk(self, records: Records, headers: Any, places: Any) -> Chunk:
        counts = headers["count"].astype(np.int64)
        index = index_in_records(counts)
        begins = places + RECORD_HEADER_BYTES
        return Chunk(
            self._origin,
            np.repeat(positions_of(places + records.offset), counts) + index,
            PublishedPayload(records.data, begins, begins + headers["length"], counts, headers["stride"]),
            np.repeat(headers["timestamp_ns"], counts),
            np.zeros(len(index), dtype=np.uint16),
            np.repeat(headers["base_id"], counts) + index.astype(np.uint64),
        )


def _groups(counts: Any) -> Iterator[tuple[int, int]]:
    """Records that make a chunk together."""
    ends = np.cumsum(counts)
    low = 0
    while low < len(counts):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + MOST_MESSAGES, "right")))
        yield low, high
        low = high


# ---- reading either kind


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    decoders = _Decoders(split, wanted, damage)
    for records in walk(file, split, wanted, damage).run():
        yield from decoders.chunks(records)


def walk(file: File, split: Split, wanted: Wanted, damage: Damage) -> Walk:
    return Walk(file, split, wanted, damage, is_end if split.format is Format.TOPIC_LOG else framed.is_end)


class _Decoders:
    def __init__(self, split: Split, wanted: Wanted, damage: Damage) -> None:
        self._path = split.path
        self._damage = damage
        self._messages = framed.FramedRecords(split.path, wanted)
        self._published = PublishedRecords(split.path, split.topic, wanted)
        self._has_topic = wanted.has_topic(split.topic)

    def chunks(self, records: Records) -> Iterator[Chunk]:
        for first, end, kind, flags in _runs(records):
            if kind == MESSAGES:
                yield from self._messages.chunks(records, first, end, partial(self._undecoded, records))
            elif kind == PUBLISHED and flags == 0:
                if self._has_topic:
                    yield from self._published.chunks(records, first, end)
            else:
                self._unknown(records, first, end - 1, "a record of a later version, which this one cannot read")

    def _undecoded(self, records: Records, index: int, what: str) -> None:
        self._unknown(records, index, index, what)

    def _unknown(self, records: Records, first: int, last: int, what: str) -> None:
        start, end = (records.offset + records.places[index] for index in (first, last))
        self._damage.found(self._path, start, end + int(records.headers["length"][last]), what)


def _runs(records: Records) -> Iterator[tuple[int, int, int, int]]:
    """(first, end, kind, flags) of records in a row that have the same kind, and for published ones, flags."""
    kinds, flags = records.headers["kind"], records.headers["flags"]
    changes = (np.diff(kinds) != 0) | ((np.diff(flags) != 0) & (kinds[1:] == PUBLISHED))
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(kinds)]
    for first, end in zip(bounds, bounds[1:], strict=False):
        yield first, end, int(kinds[first]), int(flags[first])
