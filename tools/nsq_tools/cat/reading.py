"""The messages of files in batches, in all formats of nsq-to-file and in that of nsqd's logs; writing them."""

from __future__ import annotations

import mmap
import os
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import chain, groupby
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import orjson

from nsq_tools.cat.files import STANDARD_INPUT, files_of, is_store
from nsq_tools.cat.options import CatOptions
from nsq_tools.cat.selection import Selection, selection_of, taken
from nsq_tools.tail.rendering import Renderer, check_shown
from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.messages import Messages, decode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, MESSAGES, Damaged, Data, FileHeader, decode
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.documents import BYTE_ORDER_MARK, JSON_BLANKS
from nsqd_py.runtime.logs.daemon_log import Log, one_line
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.stores.compression import Codec, is_padding, next_whole
from nsqd_py.stores.directories import hive_topic
from nsqd_py.stores.files import FileWindow, LocalFile
from nsqd_py.stores.formats import (
    COLUMNS,
    HEAD_BYTES,
    LONGEST_LINE_BYTES,
    MAGICS,
    Format,
    codec_of,
    format_of,
    name_without_compression,
)

_BATCH_ROWS = 10_000
_PIPE_BYTES = 64 * 1024
_TEXTS = (Format.LINES, Format.JSONL)
_NO_TOPIC = (
    "does not store its topic, which is shown as empty: nsq-to-file wrote it to a directory topic=..., from which it was copied; "
    "put it in a directory of this name"
)

# Called with a text about each part of a file that cannot be read.
OnDamage = Callable[[str], None]
Batches = Iterator[Messages]


def check(options: CatOptions) -> None:
    """Raise BadOptions if the options contradict each other, or cannot be."""
    check_shown(options)
    selection_of(options)
    if options.n < 0:
        raise BadOptions(f"-n {options.n} must not be negative; 0 means no limit")


def run(options: CatOptions, log: Log) -> int:
    """Write the messages of all files. Return FAILED if something could not be read. Raises ToolError, OSError."""
    renderer = Renderer(options)
    selection = selection_of(options)
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
            for messages in _batches(name, selection, on_damage):
                data, _ = renderer.show(selection.of(messages))
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()  # what a pipe brought is shown before it brings more
                if renderer.is_over:
                    return status
        except OSError as error:
            if error.filename is None:  # of standard output
                raise
            on_damage(error.strerror or str(error))
    if renderer.not_json_count:
        complain(f"nsq-cat: {renderer.not_json_count} bodies were not JSON: no values were picked from them")
    return status


def _batches(name: str, selection: Selection, on_damage: OnDamage) -> Batches:
    """Yield the messages of a file or a store; of a store, parts without selected messages are left out.

    Raises ToolError, and OSError with the name of the file: one without a name is of standard output.
    """
    if is_store(name):
        yield from _stored(name, selection, on_damage)
        return
    is_input = name == STANDARD_INPUT
    try:
        with open(0 if is_input else name, "rb", closefd=not is_input) as file:
            yield from messages_in(file, name, on_damage)
    except OSError as error:
        error.filename = name
        raise


def _stored(name: str, selection: Selection, on_damage: OnDamage) -> Batches:
    """Yield the messages of a store, topic by topic, in order."""
    from nsq_tools.cat.stores import StoredMessages  # which files do not need

    store = StoredMessages(name, on_damage)
    for source, part in store.parts(selection):

        def on_damage_of_part(text: str, source: str = source) -> None:
            on_damage(f"{source}: {text}")

        try:
            data = store.data_of(part)
            span = None
            if part.is_cut:
                span = (part.first_seq, part.end_seq)
            yield from _records(data, part.topic, on_damage_of_part, store.node, is_whole=True, numbers=span)
        except OSError as error:
            on_damage_of_part(error.strerror or str(error))


def messages_in(file: BufferedReader, name: str, on_damage: OnDamage) -> Batches:
    """Yield the messages of a file. Raises OSError, and ToolError if a package is missing."""
    is_file = file.seekable() and os.fstat(file.fileno()).st_size > 0
    if is_file:
        # Another program may cut a file while it is read, which would end this process if it were mapped.
        data: Data = FileWindow(LocalFile(file.fileno()))
    else:
        piped = _piped(file)
        head = _head(piped)
        form = format_of(os.path.basename(name), head)
        if form in _TEXTS and not head.startswith(MAGICS) and codec_of(name, head).is_plain:
            return _texts(form, head, piped, on_damage)
        data = _on_disk(chain([head], piped))
    codec = codec_of(name, data[:HEAD_BYTES])
    pieces = _pieces(data, codec, on_damage)
    head = _head(pieces)
    form = format_of(os.path.basename(name), head)
    if form in _TEXTS:
        return _texts(form, head, pieces, on_damage)
    if not codec.is_plain:
        data = _on_disk(chain([head], pieces))
    elif is_file and form is Format.TOPIC_LOG:
        data = file.read()  # nsqd cuts the space off that it has allocated
    if form is Format.PARQUET:
        return _rows(file if is_file and codec.is_plain else data, name, on_damage)
    log_name = parse_log_file_name(name_without_compression(os.path.basename(name)))
    return _records(data, log_name[0] if log_name else "", on_damage)


def _piped(file: BufferedReader) -> Iterator[bytes]:
    """Yield what a pipe brings as it comes: its writer may pause, or never end."""
    while piece := file.read1(_PIPE_BYTES):
        yield piece


def _head(pieces: Iterator[bytes]) -> bytes:
    """Return the first pieces, up to the end of the first line that is not blank: a compressed one may hold less."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= HEAD_BYTES or b"\n" in head.removeprefix(BYTE_ORDER_MARK).lstrip(JSON_BLANKS):
            break
    return head


def _pieces(data: Data, codec: Codec, on_damage: OnDamage) -> Iterator[bytes]:
    """Yield what a file holds. Behind damage a line begins."""
    start = 0
    while start < len(data):
        for piece in codec.pieces(data, start):
            start = piece.end or start
            yield piece.data
        if start == len(data) or is_padding(codec, data, start):
            return
        end = next_whole(codec, data, start + 1)
        on_damage(f"{codec.name}: bytes {start} to {end} cannot be decompressed")
        yield b"\n"
        start = end


def _on_disk(pieces: Iterable[bytes]) -> Data:
    """Return a temporary file with the pieces: a small file may decompress to more than the memory. Raises OSError."""
    with TemporaryFile() as file:
        file.writelines(pieces)
        file.flush()
        if not file.tell():  # which cannot be mapped
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# --- lines and jsonl


def _texts(form: Format, head: bytes, pieces: Iterator[bytes], on_damage: OnDamage) -> Batches:
    if form is Format.LINES:
        return _bodies(_lines(chain([head], pieces), on_damage))
    begin = head.removeprefix(BYTE_ORDER_MARK)
    lines = _lines(chain([begin], pieces), on_damage)
    return _objects(lines, on_damage)


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
            rest = [last]
            rest_bytes = len(last)
    line = _joined(rest, rest_bytes, on_damage)
    yield [line] if line else []


def _joined(parts: list[bytes], size_bytes: int, on_damage: OnDamage) -> bytes:
    """Return a line; nothing if it was too long."""
    if size_bytes > LONGEST_LINE_BYTES:
        on_damage(f"a line of {size_bytes} bytes is left out; at most {LONGEST_LINE_BYTES} are read")
        return b""
    return b"".join(parts)


def _bodies(blocks: Iterable[list[bytes]]) -> Batches:
    for lines in blocks:
        count = len(lines)
        yield Messages("", "", "", [0] * count, [0] * count, [b""] * count, lines)


def _objects(blocks: Iterable[list[bytes]], on_damage: OnDamage) -> Batches:
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
    body = message.get("body")
    encoded = message.get("body_base64")
    if (body is None) == (encoded is None):
        raise ValueError("there is no body" if body is None else "there are two bodies")
    return body if encoded is None else b64decode(encoded, validate=True)


def _row(message: Any, body: str | bytes) -> tuple[Any, ...]:
    """Return an object in the order of the columns of `Messages`; what is missing or null is empty. Raises TypeError."""
    names = (_text(message, name).decode() for name in ("topic", "channel", "nsqd"))
    time_name = "timestamp_ns" if "timestamp_ns" in message else "timestamp"
    time_ns = _number(message, time_name)
    attempts = _number(message, "attempts")
    return (*names, time_ns, attempts, _text(message, "id"), _encoded("body", body))


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
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}"
    return str(error)


def _grouped(rows: Iterable[tuple[Any, ...]]) -> Batches:
    """Yield rows in a batch for each run with the same topic, channel and nsqd."""
    for names, group in groupby(rows, key=lambda row: row[:3]):
        yield Messages(*names, *map(list, zip(*(row[3:] for row in group), strict=True)))


# --- records


def _records(
    data: Data,
    topic: str,
    on_damage: OnDamage,
    nsqd: str = "",
    *,
    is_whole: bool = False,
    numbers: Range | None = None,
) -> Batches:
    """Yield the messages of records.

    topic, nsqd  of the log
    is_whole     nothing is behind the last record
    numbers      of the messages of the log that count; None for all
    """
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
                batch = decode(data[position:end], 0, header.salt)[0]
                messages = Messages.of_batch(batch, topic, nsqd)
                if numbers is not None:
                    low, high = (max(0, number - batch.first_seq) for number in numbers)
                    messages = taken(messages, range(low, min(high, batch.count)))
                yield messages
        except Damaged as error:
            on_damage(f"bytes {position} to {end}: {error}")
    # nsqd allocates a log in advance, and writes over used files.
    if is_whole:
        is_cut = end < len(data)
    else:
        is_cut = not header.is_reused and bool(data[end:].strip(b"\0"))
    if is_cut:
        on_damage(f"bytes {end} to {len(data)} are damaged")


# --- parquet


def _rows(source: BinaryIO | Data, name: str, on_damage: OnDamage) -> Batches:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ToolError("parquet files need pyarrow: pip install 'nsqd-py[parquet]'") from None
    unreadable = (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        MemoryError,
        pyarrow.ArrowException,
    )
    try:
        readable = source
        if isinstance(source, bytes | mmap.mmap):
            readable = pyarrow.BufferReader(source)
        file = parquet.ParquetFile(readable, page_checksum_verification=True)
        names = COLUMNS & set(file.schema_arrow.names)
    except unreadable as error:
        on_damage(f"parquet: {error}")
        return
    if "timestamp_ns" in names:
        names.discard("timestamp")
    topic = hive_topic(name)
    if not topic and "nsqd" in names and "topic" not in names:
        complain(one_line(f"nsq-cat: {name}: {_NO_TOPIC}"))
    for group in range(file.num_row_groups):
        try:
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=sorted(names)):
                if "timestamp" in names and pyarrow.types.is_timestamp(batch.schema.field("timestamp").type):
                    in_ns = batch.column("timestamp").cast(pyarrow.timestamp("ns")).cast(pyarrow.int64())
                    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", in_ns)
                rows = batch.to_pylist()
                messages = [
                    _row({"topic": topic, **row}, row["body"]) for row in rows if row["body"] is not None
                ]
                if len(messages) < len(rows):
                    on_damage(f"parquet: {len(rows) - len(messages)} rows have no body")
                yield from _grouped(messages)
        except unreadable as error:
            on_damage(f"parquet: {_reason_of(error)}")
