"""Rows become commands: by the column, with no work for a single row where nothing is deferred."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.payload import Payload
from nsq_spark.source.columns import WriteColumns
from nsq_spark.source.publisher import Send
from nsqd_py.batch import SIZE_BYTES


class BadRow(ValueError):
    """A row that cannot be published; the text says which and why."""


def sends(batch: pa.RecordBatch, columns: WriteColumns, topic: str, batch_bytes: int) -> Iterator[Send]:
    """All rows of a batch; those of a topic in their order, but for the deferred, which come first. Raises BadRow."""
    bodies = _bodies(batch.column(columns.body))
    for name, rows in _by_topic(batch, columns, topic):
        part = bodies if rows is None else bodies.take(rows)
        if columns.defer_ms is not None:
            delays = _delays(batch.column(columns.defer_ms))
            delays = delays if rows is None else delays.take(rows)
            yield from _deferred(name, part, delays)
            part = part.filter(pc.equal(delays, 0))
        yield from mpubs(name, part, batch_bytes)


def mpubs(topic: str, bodies: pa.Array, batch_bytes: int) -> Iterator[Send]:
    """Commands of about `batch_bytes`; a larger message is alone."""
    payload = Payload.of_array(bodies)
    ends = np.cumsum(payload.sizes + SIZE_BYTES)
    low = 0
    while low < len(ends):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + batch_bytes, "right")))
        yield Send(topic, payload.take(slice(low, high)).mpub_body(), high - low)
        low = high


def _bodies(column: pa.Array) -> pa.Array:
    bodies = column.cast(pa.binary())
    if bodies.null_count:
        raise BadRow("nsq: column body is null in a row, and there is no such message")
    if len(bodies) and pc.min(pc.binary_length(bodies)).as_py() == 0:
        raise BadRow("nsq: column body is empty in a row, and nsqd takes no empty message")
    return bodies


def _by_topic(batch: pa.RecordBatch, columns: WriteColumns, topic: str) -> Iterator[tuple[str, pa.Array | None]]:
    """Topics in the order in which they come, and the rows of each; None: all."""
    if columns.topic is None:
        yield topic, None
        return
    column = batch.column(columns.topic).cast(pa.string())
    if column.null_count:
        raise BadRow("nsq: column topic is null in a row; where is it to go?")
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], None
        return
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(names):
        yield name, pa.array(np.flatnonzero(codes == code))


def _delays(column: pa.Array) -> pa.Array:
    delays = pc.fill_null(column.cast(pa.int64()), 0)
    if len(delays) and pc.min(delays).as_py() < 0:
        raise BadRow("nsq: column defer_ms is less than 0 in a row")
    return delays


def _deferred(topic: str, bodies: pa.Array, delays: pa.Array) -> Iterator[Send]:
    """There is no MPUB that defers: a command each."""
    is_deferred = pc.greater(delays, 0)
    some, delays = bodies.filter(is_deferred), delays.filter(is_deferred)
    for body, delay_ms in zip(some.to_pylist(), delays.to_pylist(), strict=True):
        yield Send(topic, body, 1, delay_ms)
