"""Chunks of columns that come as Arrow arrays, with a topic and a channel a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.chunk import Chunk, Nsqds, Origin
from nsq_spark.archive.columns import Numbers
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length; those that nobody knows are missing or null. `body` (binary) has no nulls."""

    columns: Mapping[str, pa.Array]
    positions: Numbers

    def column(self, name: str) -> pa.Array | None:
        """None where nothing is known of any row."""
        column = self.columns.get(name)
        return None if column is None or column.null_count == len(column) else column


def chunks_of(rows: Rows, topic: str, file: str, wanted: Wanted) -> Iterator[Chunk]:
    """In the order of the rows: a chunk ends where topic or channel changes. `topic` is that of rows without one."""
    payload = Payload.of_array(rows.columns["body"])
    for low, high in _runs(rows):
        part = slice(low, high)
        origin = Origin(_first(rows, "topic", low) or topic, _first(rows, "channel", low) or None, file)
        if wanted.has_topic(origin.topic):
            yield Chunk(
                origin,
                rows.positions[part],
                payload.take(part),
                _numbers(rows, "timestamp", part, np.int64),
                _numbers(rows, "attempts", part, np.int32),
                _ids(rows, part),
                _nsqds(rows, part),
            )


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Rows of the same topic and channel, and of which the same is known."""
    count = len(rows.positions)
    changes = np.zeros(max(0, count - 1), dtype=bool)
    for name in ("topic", "channel"):
        column = rows.column(name)
        if column is not None:
            codes = pc.fill_null(column, "").dictionary_encode().indices.to_numpy(zero_copy_only=False)
            changes |= np.diff(codes) != 0
    for name in ("timestamp", "attempts", "id"):
        column = rows.column(name)
        if column is not None and column.null_count:
            changes |= np.diff(column.is_null().to_numpy(zero_copy_only=False).view(np.int8)) != 0
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    return ((low, high) for low, high in zip(bounds, bounds[1:], strict=False) if low < high)


def _first(rows: Rows, name: str, row: int) -> str | None:
    column = rows.column(name)
    value: str | None = None if column is None else column[row].as_py()
    return value


def _numbers(rows: Rows, name: str, part: slice, kind: Any) -> Numbers | None:
    column = rows.column(name)
    if column is None or column[part].null_count:
        return None
    numbers: Numbers = column[part].to_numpy(zero_copy_only=False).astype(kind, copy=False)
    return numbers


def _ids(rows: Rows, part: slice) -> pa.Array | None:
    column = rows.column("id")
    return None if column is None or column[part].null_count else column[part]


def _nsqds(rows: Rows, part: slice) -> Nsqds:
    column = rows.column("nsqd")
    if column is None:
        return None
    names = column[part].dictionary_encode()
    if len(names.dictionary) == 1 and not names.null_count:
        name: str = names.dictionary[0].as_py()
        return name or None
    return names
