"""`parquet`: columns topic, channel, timestamp, id, attempts, body, nsqd.

A Parquet file can be read only after its footer is written, at its end. So messages are written to a framed file, which
is synced before they are finished. When the framed file is complete, or at the next start, it is converted to the
Parquet file. Needs pyarrow: `pip install nsqd-py[parquet]`.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsq_tools.to_file.compression import GZIP, NONE, ZSTD, Codec
from nsq_tools.to_file.formats.format import Format, Warn
from nsq_tools.to_file.formats.framed import FramedEncoder, scan_records
from nsqd_py.diskqueue.messages import Messages, decode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader

_ROW_GROUP_ROWS = 120_000
_ROW_GROUP_BYTES = 64 * 1024 * 1024


def is_installed() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _side_file(codec: Codec, level: int, warn: Warn) -> FramedEncoder:
    from nsq_tools.to_file.compression import CODECS

    return FramedEncoder(CODECS[NONE], level, warn)


def convert(source: Path, target: Path, codec_name: str) -> None:
    """Convert the framed file `source` to the Parquet file `target`, and sync it. Raises OSError."""
    import pyarrow.parquet as parquet

    schema = _schema()
    with source.open("rb") as file, target.open("xb") as out:
        with parquet.ParquetWriter(out, schema, compression=codec_name, write_page_checksum=True) as writer:
            for group in _row_groups(_messages_in(file)):
                writer.write_table(_table(group, schema))
        out.flush()
        os.fsync(out.fileno())


def _schema() -> Any:
    import pyarrow as arrow

    # timestamp is a number, ns since the epoch, because timestamps of Spark have no ns.
    return arrow.schema(
        [
            arrow.field("topic", arrow.string(), nullable=False),
            arrow.field("channel", arrow.string(), nullable=False),
            arrow.field("timestamp", arrow.int64(), nullable=False),
            arrow.field("id", arrow.string(), nullable=False),
            arrow.field("attempts", arrow.int32(), nullable=False),
            arrow.field("body", arrow.binary(), nullable=False),
            arrow.field("nsqd", arrow.string(), nullable=False),
        ]
    )


def _messages_in(file: Any) -> Iterator[Messages]:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
        for position, _ in record_positions(data, FILE_HEADER_BYTES, salt):
            try:
                yield decode_messages(data, position, salt)[0]
            except Damaged:  # the checksum is valid, so another program wrote it
                continue


def _row_groups(records: Iterator[Messages]) -> Iterator[list[Messages]]:
    group: list[Messages] = []
    rows = size_bytes = 0
    for messages in records:
        group.append(messages)
        rows += len(messages)
        size_bytes += sum(map(len, messages.bodies))
        if rows >= _ROW_GROUP_ROWS or size_bytes >= _ROW_GROUP_BYTES:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group


def _table(group: list[Messages], schema: Any) -> Any:
    import pyarrow as arrow

    return arrow.Table.from_batches([_record_batch(messages, schema) for messages in group], schema)


def _record_batch(messages: Messages, schema: Any) -> Any:
    import pyarrow as arrow

    count = len(messages)
    columns = (
        [messages.topic] * count,
        [messages.channel] * count,
        messages.timestamps_ns,
        [message_id.decode("ascii", "backslashreplace") for message_id in messages.ids],
        messages.attempts,
        messages.bodies,
        [messages.nsqd] * count,
    )
    arrays = [arrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return arrow.record_batch(arrays, schema=schema)


PARQUET = Format(
    name="parquet",
    suffix=".parquet",
    codecs=(NONE, GZIP, ZSTD),
    overhead_bytes=30,
    encoder=_side_file,
    scan=scan_records,
    gathers=True,
    convert=convert,
)
