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
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from urllib.parse import unquote

import orjson

from nsq_tools.cat.files import STANDARD_INPUT, files_of
from nsq_tools.cat.options import CatOptions
from nsq_tools.tail.rendering import MessageLimit, Renderer
from nsq_tools.to_file.compression import CODECS, GZIP, NONE, ZSTD, Codec, Data, is_zero
from nsq_tools.to_file.formats import FORMATS
from nsqd_py.diskqueue.messages import Messages, decode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FILE_MAGIC, MESSAGES, Damaged, FileHeader, decode
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.documents import BYTE_ORDER_MARK, JSON_BLANKS, begins_with_message
from nsqd_py.runtime.logs import Log, one_line
from nsqd_py.settings.program import DONE, FAILED, ToolError

_LOG_NAME = re.compile(r"(.+)\.\d{20}\.log")
_COMPRESSED = {b"\x1f\x8b\x08": GZIP, b"\x28\xb5\x2f\xfd": ZSTD}
_PARQUET_MAGIC = b"PAR1"
_JSONL_SUFFIX = FORMATS["jsonl"].suffix
_HIVE_TOPIC = re.compile(r"(?:.*/)?topic=([^/]+)/.*", re.DOTALL)
_HEAD_BYTES = 160 * 1024
_BATCH_ROWS = 10_000
_COLUMNS = {"topic", "channel", "timestamp", "timestamp_ns", "id", "attempts", "body", "nsqd"}
# As in Spark's reader.
LONGEST_LINE_BYTES = 64 * 1024 * 1024

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
    head = _head(pieces)
    if not head.startswith((FILE_MAGIC, _PARQUET_MAGIC)):
        if name.removesuffix(codec.suffix).endswith(_JSONL_SUFFIX) or begins_with_message(head):
            return _objects(_lines(chain([head.removeprefix(BYTE_ORDER_MARK)], pieces), on_damage), on_damage)
        return _bodies(_lines(chain([head], pieces), on_damage))
    whole = data if codec.is_plain else _on_disk(chain([head], pieces))
    if head.startswith(_PARQUET_MAGIC):
        hive = _HIVE_TOPIC.fullmatch(name)
        return _rows(whole, unquote(hive[1]) if hive else "", on_damage)
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


def _head(pieces: Iterator[bytes]) -> bytes:
    """Return the first pieces, up to the end of the first line that is not blank: a compressed one may hold less."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= _HEAD_BYTES or b"\n" in head.removeprefix(BYTE_ORDER_MARK).lstrip(JSON_BLANKS):
            break
    return head


def _pieces(data: Data, codec: Codec, on_damage: OnDamage) -> Iterator[bytes]:
    end = 0
    for piece in codec.pieces(data, 0):
        end = piece.end or end
        yield piece.data
    is_padded = end > 0 and codec.name == GZIP and is_zero(data, end)  # gzip passes over zeros behind the last member, too
    if end < len(data) and not is_padded:
        on_damage(f"{codec.name}: bytes {end} to {len(data)} cannot be decompressed")


def _on_disk(pieces: Iterable[bytes]) -> Data:
    """Return a temporary file with the pieces: a small file may decompress to more than the memory. Raises OSError."""
    with TemporaryFile() as file:
        file.writelines(pieces)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# --- lines and jsonl


def _lines(pieces: Iterable[bytes], on_damage: OnDamage) -> Iterator[list[bytes]]:
    """Yield the lines of each piece. Empty ones are left out, since no message is empty; so are those that are too long."""
    rest: list[bytes] = []
    rest_bytes = 0
    for piece in pieces:
        begin, newline, behind = piece.partition(b"\n")
        rest_bytes += len(begin)
        if rest_bytes <= LONGEST_LINE_BYTES:
            rest.append(begin)
        else:
            rest.clear()
        if newline:
            first = _joined(rest, rest_bytes, on_damage)
            *lines, last = behind.split(b"\n")
            yield [line for line in (first, *lines) if line]
            rest, rest_bytes = [last], len(last)
    line = _joined(rest, rest_bytes, on_damage)
    yield [line] if line else []


def _joined(parts: list[bytes], size_bytes: int, on_damage: OnDamage) -> bytes:
    """Return a line; nothing if it was too long."""
    if size_bytes > LONGEST_LINE_BYTES:
        on_damage(f"a line of {size_bytes} bytes is left out; at most {LONGEST_LINE_BYTES} are read")
        return b""
    return b"".join(parts)


def _bodies(blocks: Iterable[list[bytes]]) -> Iterator[Messages]:
    for lines in blocks:
        count = len(lines)
        yield Messages("", "", "", [0] * count, [0] * count, [b""] * count, lines)


def _objects(blocks: Iterable[list[bytes]], on_damage: OnDamage) -> Iterator[Messages]:
    for lines in blocks:
        rows = []
        for line in lines:
            if not line.strip(JSON_BLANKS):
                continue
            try:
                message = orjson.loads(line)
                message.pop("timestamp_ns", None)  # of Parquet; here, `timestamp` is in ns
                rows.append(_row(message, _body(message)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                on_damage(f"a line is no message: {line[:60]!r}: {_reason_of(error)}")
        yield from _grouped(rows)


def _body(message: Any) -> str | bytes:
    """Return the body of an object. Raises ValueError and TypeError."""
    body, encoded = message.get("body"), message.get("body_base64")
    if (body is None) == (encoded is None):
        raise ValueError("there is no body" if body is None else "there are two bodies")
    return body if encoded is None else b64decode(encoded, validate=True)


def _row(message: Any, body: str | bytes) -> tuple[Any, ...]:
    """Return an object in the order of the columns of `Messages`; what is missing or null is empty. Raises TypeError."""
    names = (_text(message, name).decode() for name in ("topic", "channel", "nsqd"))
    time_ns = _number(message, "timestamp_ns" if "timestamp_ns" in message else "timestamp")
    return (*names, time_ns, _number(message, "attempts"), _text(message, "id"), _encoded("body", body))


def _text(message: Any, name: str) -> bytes:
    return _encoded(name, message.get(name) or "")


def _encoded(name: str, value: object) -> bytes:
    """Other programs may store texts as binary, and bodies as text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{name} is of the type {type(value).__name__}")


def _number(message: Any, name: str) -> int:
    value = message.get(name) or 0
    if type(value) is not int:
        raise TypeError(f"{name} is of the type {type(value).__name__}")
    return value


def _reason_of(error: Exception) -> str:
    """Return the text of an error; a KeyError has only the name of what is missing."""
    return f"there is no {error.args[0]}" if isinstance(error, KeyError) else str(error)


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


def _rows(data: Data, topic: str, on_damage: OnDamage) -> Iterator[Messages]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ToolError("parquet files need pyarrow: pip install 'nsqd-py[parquet]'") from None
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        names = _COLUMNS & set(file.schema_arrow.names)
        if "timestamp_ns" in names:
            names.discard("timestamp")
        for batch in file.iter_batches(_BATCH_ROWS, columns=sorted(names)):
            rows = pyarrow.Table.from_batches([batch])
            if "timestamp" in names and pyarrow.types.is_timestamp(rows.schema.field("timestamp").type):
                index = rows.schema.get_field_index("timestamp")
                in_ns = rows.column("timestamp").cast(pyarrow.timestamp("ns")).cast(pyarrow.int64())
                rows = rows.set_column(index, "timestamp", in_ns)
            yield from _grouped([_row({"topic": topic, **row}, row["body"]) for row in rows.to_pylist()])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, pyarrow.ArrowException) as error:
        on_damage(f"parquet: {_reason_of(error)}")
