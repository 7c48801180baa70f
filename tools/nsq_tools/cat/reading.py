"""The messages of files in batches, in all formats of nsq-to-file and in that of nsqd's logs; writing them."""

from __future__ import annotations

import mmap
import os
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, groupby
from typing import Any, BinaryIO

import orjson

from nsq_tools.cat.files import STANDARD_INPUT, files_of
from nsq_tools.cat.options import CatOptions
from nsq_tools.tail.rendering import MessageLimit, Renderer
from nsq_tools.to_file.compression import CODECS, GZIP, NONE, ZSTD, Codec, Data
from nsqd_py.diskqueue.messages import Messages, decode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FILE_MAGIC, MESSAGES, Damaged, FileHeader, decode
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs import Log, one_line
from nsqd_py.settings.program import DONE, FAILED, ToolError

_LOG_NAME = re.compile(r"(.+)\.\d{20}\.log")
_COMPRESSED = {b"\x1f\x8b\x08": GZIP, b"\x28\xb5\x2f\xfd": ZSTD}
_PARQUET_MAGIC = b"PAR1"
_JSONL_START = re.compile(rb'\{"timestamp":-?\d+,"id":"')
_BATCH_ROWS = 10_000

# Called with a text about each part of a file that cannot be read.
OnDamage = Callable[[str], None]


def run(options: CatOptions, log: Log) -> int:
    """Write the messages of all files. Return FAILED if something could not be read. Raises ToolError, OSError."""
    renderer, limit = Renderer(options), MessageLimit(options.n)
    status = DONE
    for name, failure in files_of(options.files):

        def on_damage(text: str, name: str = name) -> None:
            nonlocal status
            status = FAILED
            complain(one_line(f"nsq-cat: {name}: {text}"))

        if failure is not None:
            on_damage(str(failure))
            continue
        try:
            with nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else open(name, "rb") as file:
                for messages in messages_in(file, name, on_damage):
                    shown, _ = limit.take(renderer.matching(messages.bodies), len(messages))
                    sys.stdout.buffer.write(renderer.render(messages, shown))
                    if limit.is_over:
                        return status
        except OSError as error:
            if error.filename is None:  # of standard output
                raise
            on_damage(error.strerror or str(error))
    if renderer.not_json_count:
        complain(f"nsq-cat: {renderer.not_json_count} bodies were not JSON: no values were picked from them")
    return status


def messages_in(file: BinaryIO, name: str, on_damage: OnDamage) -> Iterator[Messages]:
    """Yield the messages of a file. Raises OSError, and ToolError if a package is missing."""
    log_name = _LOG_NAME.fullmatch(os.path.basename(name))
    data = _contents(file, is_log=log_name is not None)
    codec = CODECS[next((codec for magic, codec in _COMPRESSED.items() if data[: len(magic)] == magic), NONE)]
    pieces = _pieces(data, codec, on_damage)
    head = next(pieces, b"")
    if not head.startswith((FILE_MAGIC, _PARQUET_MAGIC)):
        lines = _lines(chain([head], pieces))
        return _objects(lines, on_damage) if _JSONL_START.match(head) else _bodies(lines)
    whole = data if codec.is_plain else b"".join((head, *pieces))
    if head.startswith(_PARQUET_MAGIC):
        return _rows(whole, on_damage)
    return _records(whole, log_name[1] if log_name else "", on_damage)


def _contents(file: BinaryIO, *, is_log: bool) -> Data:
    """Return what a file holds. nsqd may cut a log while it is read, so that one is not mapped."""
    try:
        if not is_log and file.seekable() and os.fstat(file.fileno()).st_size:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return file.read()
    except OSError as error:
        error.filename = file.name  # an error without a name is one of standard output
        raise


def _pieces(data: Data, codec: Codec, on_damage: OnDamage) -> Iterator[bytes]:
    end = 0
    for piece in codec.pieces(data, 0):
        end = piece.end or end
        yield piece.data
    if end < len(data):
        on_damage(f"{codec.name}: bytes {end} to {len(data)} cannot be decompressed")


# --- lines and jsonl


def _lines(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of each piece. Empty ones are left out, since no message is empty."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield [line for line in lines if line]
    yield [rest] if rest else []


def _bodies(blocks: Iterable[list[bytes]]) -> Iterator[Messages]:
    for lines in blocks:
        count = len(lines)
        yield Messages("", "", "", [0] * count, [0] * count, [b""] * count, lines)


def _objects(blocks: Iterable[list[bytes]], on_damage: OnDamage) -> Iterator[Messages]:
    for lines in blocks:
        rows = []
        for line in lines:
            try:
                message = orjson.loads(line)
                body = message["body"].encode() if "body" in message else b64decode(message["body_base64"], validate=True)
                rows.append(_row(message, body))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                on_damage(f"a line is no message: {line[:60]!r}: {error}")
        yield from _grouped(rows)


def _row(message: Any, body: bytes) -> tuple[Any, ...]:
    """Return an object in the order of the columns of `Messages`."""
    names = (message.get(name) or "" for name in ("topic", "channel", "nsqd"))
    time_ns = message.get("timestamp_ns", message.get("timestamp", 0))
    return (*names, time_ns, message.get("attempts", 0), message.get("id", "").encode(), body)


def _grouped(rows: Iterable[tuple[Any, ...]]) -> Iterator[Messages]:
    """Yield rows in a batch for each run with the same topic, channel and nsqd."""
    for names, group in groupby(rows, key=lambda row: row[:3]):
        yield Messages(*names, *map(list, zip(*(row[3:] for row in group), strict=True)))


# --- records


def _records(data: Data, topic: str, on_damage: OnDamage) -> Iterator[Messages]:
    try:
        header = FileHeader.decode(data[:FILE_HEADER_BYTES])
    except Damaged as error:
        on_damage(str(error))
        return
    end = FILE_HEADER_BYTES
    for position, record in record_positions(data, end, header.salt):
        if position > end:
            on_damage(f"bytes {end} to {position} are damaged")
        end = position + record.record_bytes
        try:
            if record.kind == MESSAGES:
                yield decode_messages(data, position, header.salt)[0]
            else:
                yield Messages.of_batch(decode(data[position:end], 0, header.salt)[0], topic)
        except Damaged as error:
            on_damage(f"bytes {position} to {end}: {error}")
    # nsqd allocates a log in advance, and writes over used files.
    if not header.is_reused and data[end:].strip(b"\0"):
        on_damage(f"bytes {end} to {len(data)} are damaged")


# --- parquet


def _rows(data: Data, on_damage: OnDamage) -> Iterator[Messages]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ToolError("parquet files need pyarrow: pip install 'nsqd-py[parquet]'") from None
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        names = set(file.schema_arrow.names)
        if "timestamp_ns" in names:
            names.discard("timestamp")
        for batch in file.iter_batches(_BATCH_ROWS, columns=sorted(names)):
            yield from _grouped([_row(row, row["body"]) for row in batch.to_pylist()])
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        on_damage(f"parquet: {error}")
