"""Rows of `jsonl` and `parquet`, whose columns are Arrow arrays, as chunks: each row has its own topic and channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.chunk import Chunk, Nsqds, Origin
from nsq_spark.archive.columns import Numbers, equal_runs
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.splits import Split
from nsq_spark.archive.wanted import Wanted

# The columns that nsq-to-file writes; `timestamp` is in ns since the epoch.
STORED_TYPES = {
    "topic": pa.string(),
    "channel": pa.string(),
    "timestamp": pa.int64(),
    "id": pa.string(),
    "attempts": pa.int32(),
    "body": pa.binary(),
    "nsqd": pa.string(),
}


def chunks_of(columns: Mapping[str, pa.Array], positions: Numbers, split: Split, wanted: Wanted) -> Iterator[Chunk]:
    """Yield chunks in the order of the rows; one ends where the topic, the channel or what is known of a row changes.

    `columns` are of STORED_TYPES; `body` has no nulls, others may be missing. Rows without a topic have the split's.
    """
    payload = Payload.of_array(columns["body"])
    known = {name: column for name, column in columns.items() if column.null_count < len(column)}
    for low, high in _runs(known, len(positions)):
        part = {name: column[low:high] for name, column in known.items()}
        full = {name: column for name, column in part.items() if not column.null_count}
        origin = Origin(_first(full, "topic") or split.topic, _first(full, "channel") or None, split.path)
        if wanted.has_topic(origin.topic):
            yield Chunk(
                origin,
                positions[low:high],
                payload.take(slice(low, high)),
                _numbers(full, "timestamp"),
                _numbers(full, "attempts"),
                full.get("id"),
                _nsqds(part.get("nsqd")),
            )


def _runs(known: Mapping[str, pa.Array], count: int) -> Iterator[tuple[int, int]]:
    changes = np.zeros(max(0, count - 1), dtype=bool)
    for name in {"topic", "channel"} & known.keys():
        codes = pc.fill_null(known[name], "").dictionary_encode().indices.to_numpy(zero_copy_only=False)
        changes |= np.diff(codes) != 0
    for name in {"timestamp", "attempts", "id"} & known.keys():
        if known[name].null_count:
            changes |= np.diff(known[name].is_null().to_numpy(zero_copy_only=False).view(np.int8)) != 0
    return equal_runs(changes, count)


def _first(columns: Mapping[str, pa.Array], name: str) -> str | None:
    value: str | None = columns[name][0].as_py() if name in columns else None
    return value


def _numbers(columns: Mapping[str, pa.Array], name: str) -> Any:
    return columns[name].to_numpy(zero_copy_only=False) if name in columns else None


def _nsqds(column: pa.Array | None) -> Nsqds:
    if column is None:
        return None
    names = column.dictionary_encode()
    if len(names.dictionary) == 1 and not names.null_count:
        name: str = names.dictionary[0].as_py()
        return name or None
    return names
