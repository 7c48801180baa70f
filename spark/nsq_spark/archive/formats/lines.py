"""Files of lines in blocks of whole lines, and `lines`, byte for byte what Go's nsq_to_file writes: a message a line.

A file of `lines` keeps bodies only; its name may have the hour.
"""

from __future__ import annotations

import logging
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from nsq_spark.archive.chunk import Chunk, Chunks, Payload, positions_of
from nsq_spark.archive.files import plain_pieces
from nsq_spark.archive.formats.parquet import STORED_TYPES, chunks_of, needed_columns
from nsq_spark.archive.splits import Compression, Damage, Numbers, Requested, Span, Split, first_line
from nsqd_py.runtime.documents import BYTE_ORDER_MARK, JSON_BLANKS
from nsqd_py.stores.files import File
from nsqd_py.stores.formats import LONGEST_LINE_BYTES

_BLOCK_BYTES = 2 * 1024 * 1024
_MARGIN_BYTES = 64 * 1024
_NEWLINE = b"\n"
_TORN = "its last line has no newline, so it is torn; if it is whole, end it with a newline"
_UNFINISHED = (
    "nsq: %s: the last %d bytes are left out, a line without a newline that may still be written; if it is whole, end it with a "
    "newline"
)
_BODIES = {"body": pa.string(), "body_base64": pa.string()}

_log = logging.getLogger("nsqd_py.spark")


class LineBlock(NamedTuple):
    """Whole lines: where each begins in `data`, and where it ends, before its newline. Empty lines are left out: no message of
    NSQ is empty.

    offset  where `data` begins in the (decompressed) file
    """

    offset: int
    data: bytes
    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, offset: int, data: bytes, size_bytes: int) -> LineBlock:
        """Return the lines in the first `size_bytes` of `data`, which end with a newline."""
        octets = np.frombuffer(data, np.uint8, size_bytes)
        ends = np.flatnonzero(octets == _NEWLINE[0])
        starts = np.append(0, ends[:-1] + 1)
        has_text = ends > starts
        return cls(offset, data, starts[has_text], ends[has_text])


class LineReader:
    """Reads the lines that begin in a split, of a range of a file or of a whole compressed one.

    is_whole  returns True for the end of a file that is a whole line, although it has no newline
    """

    def __init__(
        self, file: File, split: Split, damage: Damage, is_whole: Callable[[bytes], bool] = lambda _: False
    ) -> None:
        self._is_whole = is_whole
        self._file = file
        self._split = split
        self._damage = damage
        self._is_plain = split.compression is Compression.NONE
        if self._is_plain:
            self._end = min(split.end, file.size_bytes)
        else:
            self._end = sys.maxsize
        # Reading begins a byte earlier: if that is a newline, a line begins at `split.start`.
        self._offset = max(0, split.start - 1)
        self._is_amid_line = split.start > 0
        self._rest = b""

    def blocks(self) -> Iterator[LineBlock]:
        """Raises OSError and DamagedArchive."""
        for piece in self._pieces():
            if not piece:
                # Members of nsq_to_file begin with a line. If one before the damage did not end with a line, its beginning is
                # dropped, and so is the end of a line behind the damage.
                self._dropped_rest()
                continue
            data = self._behind_amid_line(self._rest + piece)
            if self._offset >= self._end:
                return
            after = self._last_newline(data) + 1
            # A plain file is read again from there: that copies less than joining all of the next piece to the rest.
            self._rest = b"" if after and self._is_plain else data[after:]
            if after:
                yield LineBlock.of(self._offset, data, after)
                self._offset += after
            elif len(self._rest) > LONGEST_LINE_BYTES:
                what = f"no newline in {LONGEST_LINE_BYTES} bytes: these are no lines"
                self._damage.found(self._split.path, *self._dropped_rest(), what)
        if self._offset >= self._end or not self._rest:
            return
        if self._is_whole(self._rest):
            yield LineBlock.of(self._offset, self._rest + _NEWLINE, len(self._rest) + 1)
            return
        if self._split.is_live:
            _log.warning(_UNFINISHED, self._split.path, len(self._rest))
        self._damage.found(self._split.path, *self._dropped_rest(), _TORN, is_unfinished=self._split.is_live)

    def _pieces(self) -> Iterator[bytes]:
        if not self._is_plain:
            yield from plain_pieces(self._file, self._split, self._damage)
            return
        while self._offset < self._end:
            position = self._offset + len(self._rest)
            size = min(_BLOCK_BYTES, max(0, self._end - position) + _MARGIN_BYTES)
            data = self._file.read_at(position, size)
            if not data:
                return
            yield data

    def _behind_amid_line(self, data: bytes) -> bytes:
        """Return the data without the end of a line whose beginning is not read."""
        if not self._is_amid_line:
            return data
        after = data.find(_NEWLINE) + 1
        self._is_amid_line = not after
        self._offset += after or len(data)
        return data[after:] if after else b""

    def _last_newline(self, data: bytes) -> int:
        """Return where the last line of the split ends in the data; -1 if no line ends in it."""
        # The line that holds it is the last one that begins in the split.
        last_byte = self._end - 1 - self._offset
        if len(data) > last_byte:
            found = data.find(_NEWLINE, max(0, last_byte))
        else:
            found = -1
        if found >= 0:
            return found
        return data.rfind(_NEWLINE)

    def _dropped_rest(self) -> Span:
        """Pass over the beginning of a line, and return its bounds."""
        start = self._offset
        self._is_amid_line = bool(self._rest)
        self._offset += len(self._rest)
        self._rest = b""
        return start, self._offset


def read(file: File, split: Split, requested: Requested, damage: Damage) -> Chunks:
    """Yield the messages of `lines`. Raises OSError and DamagedArchive."""
    if not requested.has_topic(split.topic):
        return
    for block in LineReader(file, split, damage).blocks():
        sizes = block.ends - block.starts
        payload = Payload(pa.py_buffer(block.data), block.starts, sizes)
        positions = positions_of(block.starts + block.offset)
        yield Chunk(split.topic, None, split.path, positions, payload)


def read_jsonl(file: File, split: Split, requested: Requested, damage: Damage) -> Chunks:
    """Raises OSError and DamagedArchive."""
    needed = needed_columns(requested)
    # Bodies are always parsed, since an object without one is no message.
    schema = pa.schema({name: kind for name, kind in STORED_TYPES.items() if name in needed} | _BODIES)
    for block in LineReader(file, split, damage, _is_whole_object).blocks():
        if block.offset == 0 and len(block.starts) and block.data.startswith(BYTE_ORDER_MARK):
            block.starts[0] = len(BYTE_ORDER_MARK)
        yield from _chunks(block, schema, split, requested, damage)


def _is_whole_object(line: bytes) -> bool:
    """True for an object up to its last brace, or for blanks: nothing of it can still be written."""
    text = line.removeprefix(BYTE_ORDER_MARK).strip(JSON_BLANKS)
    try:
        return not text or isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def _chunks(
    block: LineBlock, schema: pa.Schema, split: Split, requested: Requested, damage: Damage
) -> Chunks:
    """Parse lines of a block together. If that fails, halve them to find the ones that are no messages."""
    count = len(block.starts)
    if not count:
        return
    first = int(block.starts[0])
    end = int(block.ends[-1]) + 1  # behind the newline
    try:
        lines = pa.py_buffer(block.data).slice(first, end - first)
        columns = _parsed(lines, count, schema)
    except (ValueError, pa.ArrowException) as error:
        if count > 1:
            for part in (slice(count // 2), slice(count // 2, None)):
                half = block._replace(starts=block.starts[part], ends=block.ends[part])
                yield from _chunks(half, schema, split, requested, damage)
        elif block.data[first:end].strip(JSON_BLANKS):
            what = f"a line is no message: {first_line(error)}"
            damage.found(split.path, block.offset + first, block.offset + end, what)
        return
    positions = positions_of(block.starts + block.offset)
    yield from chunks_of(columns, positions, split, requested)


def _parsed(lines: pa.Buffer, count: int, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the columns of `count` lines. Raises ValueError and pyarrow's errors if one is no message."""
    options = pajson.ReadOptions(use_threads=False, block_size=lines.size + 1)
    parsing = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = pajson.read_json(pa.BufferReader(lines), options, parsing)
    if table.num_rows != count:
        raise ValueError("it is not one object")
    table.validate(full=True)  # the parser does not check UTF-8
    columns = {name: table.column(name).combine_chunks() for name in schema.names}
    columns["body"] = _bodies(columns["body"], columns.pop("body_base64"))
    return columns


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    return b64decode(text, validate=True)


def _bodies(texts: pa.Array, encoded: pa.Array) -> pa.Array:
    """Raises ValueError."""
    bodies = texts.view(pa.binary())
    if encoded.null_count < len(encoded):
        decoded = list(map(_decoded, encoded.to_pylist()))
        bodies = pc.coalesce(bodies, pa.array(decoded, pa.binary()))
    if bodies.null_count or texts.null_count + encoded.null_count != len(texts):
        raise ValueError("it has no body, or two")
    return bodies
