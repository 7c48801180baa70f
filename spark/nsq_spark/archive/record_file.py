"""Reads files of records, of both kinds: `framed` and the topic log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nsq_spark.archive import framed, topic_log
from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Format
from nsq_spark.archive.records import Records, Walk
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File
from nsq_spark.archive.wanted import Wanted
from nsqd_py.diskqueue.records import MESSAGES, PUBLISHED


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    decoders = _Decoders(split, wanted, damage)
    for records in walk(file, split, wanted, damage).run():
        yield from decoders.chunks(records)


def walk(file: File, split: Split, wanted: Wanted, damage: Damage) -> Walk:
    is_end = topic_log.is_end if split.format is Format.TOPIC_LOG else framed.is_end
    return Walk(file, split, wanted, damage, is_end)


class _Decoders:
    def __init__(self, split: Split, wanted: Wanted, damage: Damage) -> None:
        self._path = split.path
        self._damage = damage
        self._messages = framed.FramedRecords(split.path, wanted)
        self._published = topic_log.PublishedRecords(split.path, split.topic, wanted)
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
