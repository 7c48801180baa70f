"""What an executor reads of an nsqd: a stretch of sequence numbers, as batches of rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import Numbers, index_in_records
from nsq_spark.archive.damage import ArchiveError, Damage
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.record_file import PublishedRecords, walk
from nsq_spark.archive.splits import Split
from nsq_spark.archive.wanted import Wanted
from nsq_spark.source.live.kept import NoTopic, patiently, read, tcp_address
from nsqd_py.diskqueue.records import PUBLISHED

_log = logging.getLogger("nsqd_py.spark")

_READ_BYTES = 8 * 1024 * 1024


class LostMessages(ArchiveError):
    """Messages were dropped before they were read."""


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Sequence numbers `low` to `high` (not included) of a topic, of one nsqd; and which columns are wanted."""

    nsqd: str
    topic: str
    low: int
    high: int
    columns: tuple[str, ...]
    fails_on_loss: bool
    give_up_after_s: float


def read_stretch(part: TopicPartition) -> Iterator[pa.RecordBatch]:
    """Raises ArchiveError, LostMessages among them."""
    names = list(part.columns)
    nsqd = patiently(partial(tcp_address, part.nsqd), part.give_up_after_s) if "nsqd" in names else ""
    seq = part.low
    while seq < part.high:
        try:
            kept = patiently(partial(read, part.nsqd, part.topic, seq, _READ_BYTES), part.give_up_after_s)
        except NoTopic:
            tell_of_loss(part.nsqd, part.topic, seq, part.high - seq, fails=part.fails_on_loss)
            return
        count = 0
        for chunk in _chunks(kept.data, f"http://{part.nsqd}/topic/read?topic={part.topic}", part.topic):
            wanted = chunk.filter((chunk.positions >= seq) & (chunk.positions < part.high))
            count += wanted.count
            if wanted.count:
                yield replace(wanted, nsqds=nsqd or None).arrow(names)
        following = min(kept.next_seq, part.high) if kept.next_seq > seq else part.high
        tell_of_loss(part.nsqd, part.topic, seq, following - seq - count, fails=part.fails_on_loss)
        seq = following


def tell_of_loss(nsqd: str, topic: str, seq: int, count: int, *, fails: bool) -> None:
    """Of `count` messages from a sequence number on. Raises LostMessages."""
    if count <= 0:
        return
    what = f"nsq: {count} messages of topic {topic} on {nsqd}, from number {seq} on, were dropped before they were read"
    if fails:
        raise LostMessages(
            f"{what}: keep them for longer (nsqd's --retention-time), or set failOnDataLoss=false to go on without them"
        )
    _log.warning("%s", what)


# ---- the records of an answer


class _Answer:
    """An answer as a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _chunks(data: bytes, url: str, topic: str) -> Iterator[Chunk]:
    """With sequence numbers for positions."""
    size = len(data)
    split = Split(url, Format.TOPIC_LOG, Compression.NONE, 0, size, topic, None, size, 0)
    wanted, published = Wanted(), PublishedRecords(url, topic, Wanted())
    for records in walk(_Answer(data), split, wanted, Damage()).run():
        if (records.headers["kind"] != PUBLISHED).any():
            raise ArchiveError(f"{url} has records of another kind: of a later version of nsqd?")
        numbers = _sequence_numbers(records.headers)
        for chunk in published.chunks(records, 0, len(records.places)):
            own, numbers = numbers[: chunk.count], numbers[chunk.count :]
            yield replace(chunk, positions=own)


def _sequence_numbers(headers: Numbers) -> Numbers:
    counts = headers["count"].astype(np.int64)
    return np.repeat(headers["first_seq"].astype(np.int64), counts) + index_in_records(counts)
