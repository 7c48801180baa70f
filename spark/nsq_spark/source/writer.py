"""The writers: each task publishes its rows, at least once, and says how many nsqd acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from nsq_spark.source.columns import WriteColumns
from nsq_spark.source.options import WriteOptions
from nsq_spark.source.publisher import Publisher
from nsq_spark.source.publishing import sends

_log = logging.getLogger("nsqd_py.spark")


@dataclass
class Published(WriterCommitMessage):
    """What a task published. `possible_duplicates` of them were sent again while nobody knew whether nsqd had them."""

    messages: int = 0
    size_bytes: int = 0
    possible_duplicates: int = 0
    topics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Writing:
    """What is the same for all tasks. Goes to the executors as it is."""

    options: WriteOptions
    columns: WriteColumns

    def write(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """Returns when nsqd has acknowledged all. Raises PublishGaveUp and BadRow."""
        options = self.options
        with Publisher(options) as publisher:
            for batch in batches:
                for send in sends(batch, self.columns, options.topic, options.batch_bytes):
                    publisher.send(send)
        counts = publisher.counts
        return Published(counts.messages, counts.size_bytes, counts.possible_duplicates, counts.topics)


def total(messages: Sequence[WriterCommitMessage | None]) -> Published:
    """Of all tasks; None is one that failed."""
    sum_of_all = Published()
    for message in messages:
        if isinstance(message, Published):
            sum_of_all.messages += message.messages
            sum_of_all.size_bytes += message.size_bytes
            sum_of_all.possible_duplicates += message.possible_duplicates
            for topic, count in message.topics.items():
                sum_of_all.topics[topic] = sum_of_all.topics.get(topic, 0) + count
    return sum_of_all


def _committed(messages: Sequence[WriterCommitMessage | None]) -> None:
    done = total(messages)
    _log.info("%d messages published, %d bytes: %s", done.messages, done.size_bytes, done.topics)
    if done.possible_duplicates:
        _log.warning("%d of %d messages may be there twice", done.possible_duplicates, done.messages)


def _aborted(messages: Sequence[WriterCommitMessage | None]) -> None:
    """What is published cannot be taken back."""
    done = total(messages)
    _log.warning("failed; %d messages were published, and will be there twice if it is done again", done.messages)


class NsqWriter(DataSourceArrowWriter):
    """`df.write.format("nsq").mode("append")`."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._writing.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _aborted(messages)


class NsqStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("nsq")`. A batch that failed half-way is published again as a whole."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._writing.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _aborted(messages)
