"""The writers of the data source: each task publishes its rows, at least once, and returns what nsqd acknowledged.

Rows become batches by the column; no single row is read, unless it is deferred.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from nsq_spark.archive.chunk import Payload, constant
from nsq_spark.publisher import (
    MOST_DEFERRED,
    NotPublished,
    Producers,
    PublishBatch,
    PublishCounts,
    PublishObserver,
    TaskPublisher,
    by_topic,
)
from nsq_spark.source.options import WriteColumns, WriteOptions

_log = logging.getLogger("nsqd_py.spark")


class PublishGaveUp(Exception):
    """nsqd did not accept messages; the text has its address, and how many messages the task had published before."""


class BadRow(ValueError):
    """A row that cannot be published; the text names the column and the reason."""


class Published(PublishCounts, WriterCommitMessage):
    """The messages that a task published."""


# ---- rows


def batches_of(
    rows: pa.RecordBatch, columns: WriteColumns, topic: str, batch_bytes: int
) -> Iterator[PublishBatch]:
    """Yield batches of all rows. The rows of a topic stay in order, except that deferred ones come first.

    Raises BadRow.
    """
    sent = {
        "topic": constant(topic, rows.num_rows),  # unless each row has its own
        "body": _bodies(rows.column(columns.body)),
    }
    if columns.topic is not None:
        sent["topic"] = _topics(rows.column(columns.topic))
    if columns.defer_ms is not None:
        sent["delay"] = _delays(rows.column(columns.defer_ms))
    for name, part in by_topic(pa.RecordBatch.from_pydict(sent)):
        if columns.defer_ms is not None:
            is_deferred = pc.greater(part.column("delay"), 0)
            yield from _deferred(name, part.filter(is_deferred))
            part = part.filter(pc.invert(is_deferred))
        payload = Payload.of_array(part.column("body"))
        for begin, end in payload.cuts(len(payload), batch_bytes):
            yield PublishBatch(name, payload, begin, end)


def _deferred(topic: str, rows: pa.RecordBatch) -> Iterator[PublishBatch]:
    payload = Payload.of_array(rows.column("body"))
    delays_ms = rows.column("delay").to_pylist()
    for begin in range(0, len(payload), MOST_DEFERRED):
        end = min(begin + MOST_DEFERRED, len(payload))
        yield PublishBatch(topic, payload, begin, end, delays_ms)


def _bodies(column: pa.Array) -> pa.Array:
    bodies = column.cast(pa.binary())
    if bodies.null_count:
        raise BadRow("nsq: column body is null in a row, but a message has a body")
    if len(bodies) and pc.min(pc.binary_length(bodies)).as_py() == 0:
        raise BadRow("nsq: column body is empty in a row, but nsqd takes no empty message")
    return bodies


def _topics(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise BadRow("nsq: column topic is null in a row; give the option topic, or a topic in each row")
    return column.cast(pa.string())


def _delays(column: pa.Array) -> pa.Array:
    delays = pc.fill_null(column.cast(pa.int64()), 0)
    if len(delays) and pc.min(delays).as_py() < 0:
        raise BadRow("nsq: column defer_ms is less than 0 in a row")
    return delays


# ---- for Spark


def total(messages: Sequence[WriterCommitMessage | None]) -> Published:
    """Return the sum of all tasks; None is a task that failed."""
    found = Published()
    for message in messages:
        if isinstance(message, Published):
            found.add(message)
    return found


@dataclass
class _Writer:
    """The common part of the writers of tables and of streams. Spark sends it to the executors."""

    _options: WriteOptions
    _columns: WriteColumns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Return when nsqd has acknowledged all rows. Raises PublishGaveUp and BadRow."""
        options = self._options
        producers = Producers(
            options.nsqd_tcp_addresses,
            options.lookupd_http_addresses,
            options.client,
            options.give_up_after_s,
        )
        sender = TaskPublisher(producers, PublishObserver())
        try:
            for rows in iterator:
                for batch in batches_of(rows, self._columns, options.topic, options.batch_bytes):
                    sender.send(batch)
            sender.finish()
        except NotPublished as error:
            count = sender.counts.messages
            raise PublishGaveUp(f"nsq: {error} (this task had published {count} messages)") from None
        finally:
            sender.close()
        found = Published()
        found.add(sender.counts)
        return found

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:
        done = total(messages)
        _log.info("%d messages published, %d bytes: %s", done.messages, done.size_bytes, done.topics)
        if done.possible_duplicates:
            _log.warning("%d of %d messages may be stored twice", done.possible_duplicates, done.messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:
        done = total(messages).messages
        _log.warning(
            "failed; %d messages were published, and are stored twice if they are written again", done
        )


class NsqWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("nsq").mode("append")`."""


class NsqStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("nsq")`. A batch that failed half-way is published again as a whole."""
