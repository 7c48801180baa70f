"""Files of lines in blocks of whole lines, and `lines`, byte for byte what Go's nsq_to_file writes: a message a line.

Nothing else is known of a message of `lines`, but the hour in the name of the file (`names`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.columns import Numbers, offset_of, positions_of
from nsq_spark.archive.compression import plain_pieces
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Compression
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File
from nsq_spark.archive.wanted import Wanted

_BLOCK_BYTES = 2 * 1024 * 1024
_MARGIN_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 64 * 1024 * 1024
_NEWLINE = b"\n"
_TORN = "its last line has no newline, so it is torn"
_TOO_LONG = f"no newline in {LONGEST_LINE_BYTES} bytes: these are no lines"


class LineBlock(NamedTuple):
    """Whole lines, the last with its newline; `offset` is where they begin in the (decompressed) file."""

    offset: int
    data: bytes

    def lines(self) -> tuple[Numbers, Numbers]:
        """Where each line begins in `data` and where it ends, before its newline. Empty ones are left out: no message
        of NSQ is empty.
        """
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == _NEWLINE[0])
        starts = np.empty_like(ends)
        starts[:1] = 0
        starts[1:] = ends[:-1] + 1
        has_text = ends > starts
        return (starts, ends) if has_text.all() else (starts[has_text], ends[has_text])


def blocks(file: File, split: Split, damage: Damage) -> Iterator[LineBlock]:
    """All lines that begin in the split. Raises OSError and DamagedArchive."""
    if split.compression is Compression.NONE:
        return _Plain(file, split, damage).run()
    return _Compressed(file, split, damage).run()


class _Plain:
    """A range of a file."""

    def __init__(self, file: File, split: Split, damage: Damage) -> None:
        self._file = file
        self._split = split
        self._damage = damage
        self._size = file.size_bytes
        self._end = min(split.end, self._size)

    def run(self) -> Iterator[LineBlock]:
        position = self._first()
        while position < self._end:
            data = self._read(position)
            if not data:
                position = self._pass_unfinished(position)
                continue
            yield LineBlock(position, data)
            position += len(data)

    def _first(self) -> int:
        """Where the first line begins that begins in the split."""
        start = max(self._split.start, offset_of(self._split.after) if self._split.after >= 0 else 0)
        if start == 0 or self._file.read_at(start - 1, 1) == _NEWLINE:
            return start
        return self._after_newline(start, self._end)

    def _after_newline(self, position: int, end: int) -> int:
        """Behind the first newline from here on; `end` if that is not before it."""
        while position < end:
            data = self._file.read_at(position, _MARGIN_BYTES)
            found = data.find(_NEWLINE)
            if found >= 0:
                return position + found + 1
            position += len(data) or end
        return end

    def _read(self, position: int) -> bytes:
        """Whole lines from here on; nothing where there is none."""
        size = min(_BLOCK_BYTES, self._end - position + _MARGIN_BYTES)
        while True:
            data = self._file.read_at(position, size)
            # The line that holds the last byte of the split is the last one that begins in it.
            last = data.find(_NEWLINE, self._end - 1 - position) if position + len(data) >= self._end else -1
            after = (last if last >= 0 else data.rfind(_NEWLINE)) + 1
            if after or len(data) < size or size > LONGEST_LINE_BYTES:
                return data if after == len(data) else data[:after]
            size *= 2

    def _pass_unfinished(self, position: int) -> int:
        """No newline follows, or not for long: where to go on."""
        after = self._after_newline(position, self._size)
        is_torn = after == self._size and self._file.read_at(after - 1, 1) != _NEWLINE
        if not (is_torn and self._split.is_live):
            self._damage.found(self._split.path, position, after, _TORN if is_torn else _TOO_LONG)
        return after


class _Compressed:
    """A whole file that is decompressed as it is read."""

    def __init__(self, file: File, split: Split, damage: Damage) -> None:
        self._file = file
        self._split = split
        self._damage = damage
        self._offset = 0
        self._rest = b""
        self._is_amid_line = False

    def run(self) -> Iterator[LineBlock]:
        for piece in plain_pieces(self._file, self._split.compression, self._on_damage):
            data = self._behind_damage(self._rest + piece)
            after = data.rfind(_NEWLINE) + 1
            self._rest = data[after:]
            if after:
                yield LineBlock(self._offset, data if after == len(data) else data[:after])
                self._offset += after
            elif len(self._rest) > LONGEST_LINE_BYTES:
                self._drop_rest(_TOO_LONG)
        if self._rest and not self._split.is_live:
            self._drop_rest(_TORN)

    def _on_damage(self, position: int, size_bytes: int, what: str) -> None:
        """What was read of a line before it is not to be taken for the beginning of what follows."""
        self._is_amid_line = bool(self._rest)
        self._offset += len(self._rest)
        self._rest = b""
        self._damage.found(self._split.path, position, position + size_bytes, f"not decompressed: {what}")

    def _behind_damage(self, data: bytes) -> bytes:
        """Without the end of a line whose beginning is lost. Members of nsq_to_file begin with a line; where one did
        not before the damage, one behind it is not trusted to either.
        """
        if self._is_amid_line:
            after = data.find(_NEWLINE) + 1
            self._is_amid_line = not after
            self._offset += after or len(data)
            return data[after:] if after else b""
        return data

    def _drop_rest(self, what: str) -> None:
        start = self._offset
        self._offset += len(self._rest)
        self._rest = b""
        self._is_amid_line = what is _TOO_LONG
        self._damage.found(self._split.path, start, self._offset, what)


# ---- `lines`


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    if not wanted.has_topic(split.topic):
        return
    origin = Origin(split.topic, None, split.path)
    for block in blocks(file, split, damage):
        starts, ends = block.lines()
        payload = Payload(pa.py_buffer(block.data), starts, ends - starts, is_sized=False)
        yield Chunk(origin, positions_of(starts + block.offset), payload)
