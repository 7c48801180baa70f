"""The messages of a file: batches, and the formats of --format, which encode them and scan files.

lines    each body and a newline, byte for byte as Go's nsq_to_file writes them. A body with newlines becomes several
         lines, and its end is lost; the other formats keep such bodies
jsonl    each message is a JSON object on one line, see `nsq_tools.messages`
framed   the records of `nsqd_py.diskqueue.messages`; each write makes one record for each nsqd. Records have checksums,
         and a reader can find the next record from any position in a file. Each is compressed separately with zstd, so
         that a compressed file can be split
parquet  columns topic, channel, timestamp, timestamp_ns, id, attempts, body, nsqd; without `topic` in Hive's directories
         `topic=...`, since readers take it from there. Such a file can be read only after its
         footer is written, at its end. So messages are written to a framed file, which is synced before they are
         finished. When the framed file is complete, or at the next start, it is converted. Needs pyarrow
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from google_crc32c import extend

from nsq_tools.messages import json_lines
from nsq_tools.to_file.log_parts import LogPart, last_part
from nsqd_py.client.message import MessageBatch
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.messages import Messages, decode_messages, encode_messages, record_positions
from nsqd_py.diskqueue.records import (
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    MAGIC,
    Damaged,
    Data,
    FileHeader,
    Incomplete,
    decode_header,
)
from nsqd_py.stores.commits import row_groups
from nsqd_py.stores.compression import CODECS, GZIP, NONE, ZSTD, Codec, is_incomplete_write, is_zero
from nsqd_py.stores.files import FileWindow, LocalFile

# Warns the user; called with the same text often, which is logged once.
Warn = Callable[[str], None]

NEWLINE_WARNING = (
    "there are messages with newlines in them: each becomes several lines, as with Go's nsq_to_file; "
    "--format=jsonl and --format=framed keep them whole"
)
# Anchored to the start of a line, so that it never matches inside a body.
_OBJECT = re.compile(
    rb'^\{"timestamp":(-?\d+),"id":"([^"]*)","attempts":\d+,"topic":"[^"]*","channel":"[^"]*","nsqd":"([^"]*)",',
    re.MULTILINE,
)


@dataclass(slots=True)
class Tally:
    """The number of messages, with the earliest and latest timestamp (ns since the epoch; None if unknown).

    parts  the messages of each nsqd, where the file has ids
    """

    messages: int = 0
    first_timestamp_ns: int | None = None
    last_timestamp_ns: int | None = None
    parts: list[LogPart] = field(default_factory=list)

    def add(self, messages: int, timestamps_ns: Sequence[int] = ()) -> None:
        """Add messages with their timestamps, or the earliest and latest of them, if these are known."""
        self.messages += messages
        if timestamps_ns:
            first = self.first_timestamp_ns
            first_ns = min(timestamps_ns)
            if first is None:
                self.first_timestamp_ns = first_ns
            else:
                self.first_timestamp_ns = min(first, first_ns)
            last = self.last_timestamp_ns
            last_ns = max(timestamps_ns)
            self.last_timestamp_ns = last_ns if last is None else max(last, last_ns)

    def add_ids(self, nsqd: str, ids: Sequence[bytes]) -> None:
        """Add the ids of messages, in their order in the file."""
        part = last_part(self.parts, nsqd)
        if not part:
            part = LogPart(nsqd)
            self.parts.append(part)
        part.add(ids)

    def nsqds(self) -> list[dict[str, Any]]:
        """Return `parts` for JSON."""
        return [asdict(part) for part in self.parts]


# --- formats


class Encoded(NamedTuple):
    """Bytes that can be read without the bytes after them; `plain_bytes` is their size before compression."""

    data: bytes
    plain_bytes: int


@dataclass(slots=True)
class FileScan:
    """The contents of a file: a tally of the messages up to `end`. The bytes after `end` are an incomplete write.

    damaged  the parts before `end` that cannot be read, in ascending order
    """

    end: int = 0
    tally: Tally = field(default_factory=Tally)
    damaged: list[Range] = field(default_factory=list)

    def add_damage(self, start: int, end: int) -> None:
        """Add a damaged part behind all others, if it is not empty."""
        if start == end:
            return
        if self.damaged and self.damaged[-1][1] == start:
            start, _ = self.damaged.pop()
        self.damaged.append((start, end))


@dataclass(frozen=True)
class FileFormat:
    """One format.

    suffix          ending of its files, instead of `.log`
    codecs          allowed values of --compress
    overhead_bytes  approximate size of a message without its body
    encoder         (codec, level, warn) returns the encoder of one file, which begins with its `header`
    scan            (data, codec, start) scans a file from `start` on; raises nothing, whatever the data
    is_appendable   True if several runs may append to one uncompressed file; otherwise each write is one record, so that small
                    writes are collected until a sync
    has_ids         True if the files have the ids of messages
    convert         (source, target, codec name, columns to leave out) makes the final file from the written one, and
                    returns what it has read of that; None if they are the same
    """

    name: str
    suffix: str
    codecs: tuple[str, ...]
    overhead_bytes: int
    encoder: Callable[[Codec, int, Warn], FileEncoder]
    scan: Callable[[Data, Codec, int], FileScan]
    is_appendable: bool = False
    has_ids: bool = True
    convert: Callable[[Path, Path, str, Collection[str]], FileScan] | None = None

    def size_of(self, batch: MessageBatch) -> int:
        """Return the approximate size of a batch in a file, before compression."""
        return sum(map(len, batch.bodies)) + self.overhead_bytes * len(batch)


# --- lines


class TextEncoder(NamedTuple):
    """The encoder of one file of lines. `text_of` returns batches as lines."""

    text_of: Callable[[Sequence[MessageBatch], Warn], bytes]
    codec: Codec
    level: int
    warn: Warn
    header: bytes = b""

    def encode(self, batches: Sequence[MessageBatch]) -> Encoded:
        data = self.text_of(batches, self.warn)
        return Encoded(self.codec.compress(data, self.level), len(data))


def bodies_of(batches: Sequence[MessageBatch], warn: Warn) -> bytes:
    data = b"\n".join(chain(chain.from_iterable(batch.bodies for batch in batches), (b"",)))
    if data.count(b"\n") != sum(map(len, batches)):
        warn(NEWLINE_WARNING)
    return data


def scan_lines(data: Data, codec: Codec, start: int, count: Callable[[Tally, bytes], None]) -> FileScan:
    """Scan the complete lines of a file. `count` adds a block of lines to the tally."""
    scan = FileScan(start)
    blocks: list[bytes] = []
    rest: list[bytes] = []
    for piece in codec.pieces(data, start):
        whole, newline, behind = piece.data.rpartition(b"\n")
        if newline:
            blocks.append(b"".join((*rest, whole, newline)))
            rest.clear()
        rest.append(behind)
        if piece.end:
            for block in blocks:
                count(scan.tally, block)
            blocks.clear()
            rest_bytes = 0
            if codec.is_plain:
                rest_bytes = sum(map(len, rest))
            scan.end = piece.end - rest_bytes
    if not codec.is_plain and not is_incomplete_write(codec, data, scan.end):
        scan.add_damage(scan.end, len(data))
        scan.end = len(data)
    return scan


# --- jsonl


def _count_objects(tally: Tally, block: bytes) -> None:
    found = _OBJECT.findall(block)
    if not found:
        return
    tally.add(block.count(b"\n"), [int(timestamp) for timestamp, _, _ in found])
    for nsqd in {nsqd for _, _, nsqd in found}:
        tally.add_ids(nsqd.decode(), [message_id for _, message_id, other in found if other == nsqd])


# --- framed


class FramedEncoder:
    """The encoder of one file of records."""

    def __init__(self, codec: Codec, level: int, warn: Warn) -> None:
        self._salt = secrets.randbits(32)
        self._next_seq = 0
        self._zstd_level = None if codec.is_plain else level
        self.header = FileHeader(self._salt, first_seq=0, used_id=0).encode()

    def encode(self, batches: Sequence[MessageBatch]) -> Encoded:
        nsqds = dict.fromkeys(batch.nsqd for batch in batches)
        records = [self._record([batch for batch in batches if batch.nsqd == nsqd]) for nsqd in nsqds]
        return Encoded(b"".join(records), sum(sum(map(len, batch.bodies)) for batch in batches))

    def _record(self, batches: Sequence[MessageBatch]) -> bytes:
        """Return the messages of batches of the same topic, channel and nsqd."""
        first = batches[0]
        columns = ("timestamps_ns", "attempts", "ids", "bodies")
        values = [list(chain.from_iterable(map(attrgetter(column), batches))) for column in columns]
        messages = Messages(first.topic, first.channel, first.nsqd, *values)
        record = encode_messages(messages, self._next_seq, self._salt, self._zstd_level)
        self._next_seq += len(messages)
        return record


FileEncoder = TextEncoder | FramedEncoder


def scan_records(data: Data, codec: Codec, start: int) -> FileScan:
    """Scan a file of records. Damaged records are skipped and reported; only an incomplete end is excluded."""
    scan = FileScan()
    for _ in _messages_in(data, scan):
        pass
    return scan


def _messages_in(data: Data, scan: FileScan) -> Iterator[Messages]:
    """Yield the messages of each record, and note in `scan` what is read and what is damaged."""
    if len(data) < FILE_HEADER_BYTES or is_zero(data, 0):
        return
    try:
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
    except Damaged:
        salt = FileHeader.unchecked(
            data[:FILE_HEADER_BYTES]
        ).salt  # the checksums of the records tell if it is right
        scan.add_damage(0, FILE_HEADER_BYTES)
    scan.end = FILE_HEADER_BYTES
    for position, header in record_positions(data, FILE_HEADER_BYTES, salt):
        scan.add_damage(scan.end, position)
        scan.end = position + header.record_bytes
        try:
            messages = decode_messages(data, position, salt)[0]
        except Damaged:  # the checksum is valid, so another program wrote it
            scan.add_damage(position, scan.end)
            continue
        scan.tally.add(header.count, (header.timestamp_ns, header.base_id))
        scan.tally.add_ids(messages.nsqd, messages.ids)
        yield messages
    if not _is_incomplete_record(data, scan.end, salt):
        scan.add_damage(scan.end, len(data))
        scan.end = len(data)


def _is_incomplete_record(data: Data, start: int, salt: int) -> bool:
    """True if the bytes from `start` on are the beginning of a record, or zeros: a write that was interrupted."""
    if is_zero(data, start):
        return True
    rest = data[start:]
    if not MAGIC.startswith(rest[: len(MAGIC)]):
        return False
    try:
        header = decode_header(rest, 0)
    except Incomplete:
        return True
    except Damaged:
        return False
    # The checksum does not cover the length: if it is valid for the rest of the file, only the length is wrong.
    return header.record_bytes > len(rest) and extend(salt, rest[CHECKED_FROM:]) != header.checksum


# --- parquet


def convert(source: Path, target: Path, codec_name: str, without: Collection[str] = ()) -> FileScan:
    """Convert the framed file `source` to the Parquet file `target`, and sync it. Raises OSError.

    without  the columns that are left out

    Return what was converted. The caller must keep the source if a part of it is damaged.
    """
    import pyarrow as arrow  # of an extra
    from pyarrow import parquet

    schema = arrow.schema([field for field in parquet_schema() if field.name not in without])
    scan = FileScan()
    with LocalFile.open(str(source)) as file, target.open("xb") as out:
        with parquet.ParquetWriter(out, schema, compression=codec_name, write_page_checksum=True) as writer:
            for group in row_groups(_messages_in(FileWindow(file), scan), _size_of):
                writer.write_table(
                    arrow.concat_tables(
                        [arrow.Table.from_pydict(_columns(messages), schema) for messages in group]
                    )
                )
        out.flush()
        os.fsync(out.fileno())
    return scan


def parquet_schema() -> Any:
    """Return pyarrow's schema of our Parquet files. Timestamps of Spark, Delta and Iceberg have no ns: a number has them."""
    import pyarrow as arrow  # of an extra

    kinds = {
        "topic": arrow.string(),
        "channel": arrow.string(),
        "timestamp": arrow.timestamp("us", tz="UTC"),
        "timestamp_ns": arrow.int64(),
        "id": arrow.string(),
        "attempts": arrow.int32(),
        "body": arrow.binary(),
        "nsqd": arrow.string(),
    }
    return arrow.schema([arrow.field(name, kind, nullable=False) for name, kind in kinds.items()])


def _size_of(messages: Messages) -> tuple[int, int]:
    return len(messages), sum(map(len, messages.bodies))


def _columns(messages: Messages) -> dict[str, Sequence[Any]]:
    count = len(messages)
    return {
        "topic": [messages.topic] * count,
        "channel": [messages.channel] * count,
        "timestamp": [time_ns // 1000 for time_ns in messages.timestamps_ns],
        "timestamp_ns": messages.timestamps_ns,
        "id": [message_id.decode("ascii", "backslashreplace") for message_id in messages.ids],
        "attempts": messages.attempts,
        "body": messages.bodies,
        "nsqd": [messages.nsqd] * count,
    }


# --- the table

# By the value of --format.
FORMATS = {
    form.name: form
    for form in (
        FileFormat(
            "lines",
            ".log",
            (NONE, GZIP, ZSTD),
            1,
            partial(TextEncoder, bodies_of),
            partial(scan_lines, count=lambda tally, block: tally.add(block.count(b"\n"))),
            is_appendable=True,
            has_ids=False,
        ),
        FileFormat(
            "jsonl",
            ".jsonl",
            (NONE, GZIP, ZSTD),
            150,
            partial(
                TextEncoder, lambda batches, warn: b"".join(chain.from_iterable(map(json_lines, batches)))
            ),
            partial(scan_lines, count=_count_objects),
            is_appendable=True,
        ),
        FileFormat("framed", ".framed", (NONE, ZSTD), 30, FramedEncoder, scan_records),
        FileFormat(
            "parquet",
            ".parquet",
            (NONE, GZIP, ZSTD),
            30,
            lambda codec, level, warn: FramedEncoder(CODECS[NONE], level, warn),
            scan_records,
            convert=convert,
        ),
    )
}
