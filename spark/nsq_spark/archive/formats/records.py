"""The walk from record to record through a file of checksummed records (`nsqd_py.diskqueue.records`).

A split has the records that begin in its range; it finds the first by magic number and checksum. Damage is reported by
the split with the good record before it, so a walk also checks the record that follows its last one.

Behind the last record of a topic's log there is space: zeros, or what is left of an earlier file, with another salt; and
the record that nsqd was writing when it ended. Of an nsqd that runs, read the topic (`nsq_spark.source`), not the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np
from google_crc32c import extend

from nsq_spark.archive.chunk import heads_at
from nsq_spark.archive.splits import Damage, Format, Numbers, Requested, Split
from nsqd_py.diskqueue.records import (
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    MAGIC,
    MESSAGES,
    RECORD_HEADER_BYTES,
    VERSION,
    Damaged,
    FileHeader,
    Incomplete,
    RecordHeader,
    decode_header,
)
from nsqd_py.stores.compression import is_zero
from nsqd_py.stores.files import File, FileWindow

BLOCK_BYTES = 4 * 1024 * 1024
# If a range of time is requested, most records are skipped by their headers, and their bodies are not read.
_SPARSE_BLOCK_BYTES = 64 * 1024
_LARGEST_READ_BYTES = 64 * 1024 * 1024
_read_front = Struct("<4sII").unpack_from  # magic, length, checksum

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("length", "<u4"),
        ("checksum", "<u4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("first_seq", "<u8"),
        ("base_id", "<u8"),
        ("timestamp_ns", "<i8"),
        ("due_ns", "<i8"),
        ("count", "<u4"),
        ("stride", "<u4"),
    ]
)


class Records(NamedTuple):
    """Records in a row whose checksums are right.

    data     a block of the file, which begins at `offset` in the file
    offsets  where in the block each record begins
    headers  the header of each, with the fields of HEADER
    """

    data: bytes
    offsets: list[int]
    offset: int
    headers: Numbers


class Walk:
    """A walk through one split; `run` yields its records in order."""

    def __init__(self, file: File, split: Split, requested: Requested, damage: Damage) -> None:
        self._file = file
        self._split = split
        self._requested = requested
        self._damage = damage
        self._size = file.size_bytes
        self._end = min(split.end, self._size)
        self._block_bytes = _SPARSE_BLOCK_BYTES if requested.has_range else BLOCK_BYTES
        self._expected_seq: int | None = None

    def run(self) -> Iterator[Records]:
        """Raises OSError and DamagedArchive."""
        split = self._split
        try:
            self._header = FileHeader.decode(self._file.read_at(0, FILE_HEADER_BYTES))
        except Damaged as error:
            if split.is_first:
                self._damage.found(split.path, 0, self._size, str(error))
            return
        position: int | None = FILE_HEADER_BYTES
        if not split.is_first:
            position = self._find(max(split.start, FILE_HEADER_BYTES), self._end)
        while position is not None and position < self._end:
            records, position, is_good = self._block(position)
            if records:
                yield records
            if not is_good:
                position = self._pass_damage(position)
        if position is not None and position < split.file_bytes and not self._is_whole(position):
            self._pass_damage(position)

    def _block(self, position: int) -> tuple[Records | None, int, bool]:
        """Return the records of a block that begins with one, where the next begins, and False if that is damaged.

        A record that is larger than a block is read alone, if it may be requested.
        """
        data = self._file.read_at(position, self._block_bytes)
        header = self._header_in(data, position)
        if header and header.record_bytes > len(data):
            if not may_be_requested(header, self._requested):
                self._expected_seq = header.end_seq
                return None, position + header.record_bytes, True
            if header.record_bytes > _LARGEST_READ_BYTES and not self._is_whole(position):
                return None, position, False  # before so much of it is held in memory
            data = self._file.read_at(position, header.record_bytes)
        offsets, after, is_good = _offsets(data, self._end - position, self._header.salt)
        headers = heads_at(data, offsets, HEADER)
        is_known = (headers["version"] == VERSION) & (headers["count"] > 0)
        if not is_known.all():
            bad = int(is_known.argmin())
            after = offsets[bad]
            offsets = offsets[:bad]
            headers = headers[:bad]
            is_good = False
        if not offsets:  # the file is shorter than its record
            return None, position + after, False
        last = headers[-1]
        self._expected_seq = int(last["first_seq"]) + int(last["count"])
        return Records(data, offsets, position, headers), position + after, is_good

    def _header_in(self, data: bytes, position: int) -> RecordHeader | None:
        """Return the header at the beginning of `data`, if the file is long enough for its record."""
        header = _decoded(data)
        if header is None or position + header.record_bytes > self._size:
            return None
        return header

    def _is_whole(self, position: int) -> bool:
        """True if a record with a right checksum begins here. Reads in blocks: a damaged length may be huge."""
        header = self._header_in(self._file.read_at(position, RECORD_HEADER_BYTES), position)
        if header is None:
            return False
        checksum = self._header.salt
        start = position + CHECKED_FROM
        end = position + header.record_bytes
        while start < end:
            block = self._file.read_at(start, min(BLOCK_BYTES, end - start))
            if not block:
                return False
            checksum = extend(checksum, block)
            start += len(block)
        return bool(checksum == header.checksum)

    def _find(self, start: int, end: int) -> int | None:
        """Return where the first record begins, from `start` on and before `end`."""
        data = FileWindow(self._file)
        offset = data.find(MAGIC, start)
        while 0 <= offset < end:
            if self._is_whole(offset):
                return offset
            offset = data.find(MAGIC, offset + 1)
        return None

    def _pass_damage(self, position: int) -> int | None:
        """Report damage at a position; return where the next good record begins, or None."""
        found = self._find(position + 1, self._size)
        path = self._split.path
        if found is not None:
            self._damage.found(path, position, found, "no record here with a right checksum")
        elif not self._is_end(position):
            self._damage.found(path, position, self._size, "its last record is torn or damaged")
        return found

    def _is_end(self, position: int) -> bool:
        """True if the file ends here: what follows is no damage, though it is no record either.

        nsqd cuts a file to its records when it ends one, so only the last file of a topic has something behind them.
        There, a record that has only space behind it is being written, or was when nsqd was killed; a record that
        reaches to the end of the file was whole once, or is cut off.
        """
        if (
            self._split.format is not Format.TOPIC_LOG or self._split.nsqd
        ):  # a store has no space behind records
            return False
        data = FileWindow(self._file)
        if is_zero(data, position):
            return True
        if not self._split.is_live or position + RECORD_HEADER_BYTES > self._size:
            return False
        header = _decoded(self._file.read_at(position, RECORD_HEADER_BYTES))
        record_end = position + (RECORD_HEADER_BYTES if header is None else header.record_bytes)
        if not self._header.is_reused:
            return record_end < self._size and is_zero(data, record_end)
        return header is None or header.first_seq != self._expected_seq or record_end < self._size


def may_be_requested(header: RecordHeader, requested: Requested) -> bool:
    """True if the times of a record's messages may be requested. One of kind MESSAGES has the last time instead of an id."""
    if header.kind == MESSAGES:
        last_ns = max(header.timestamp_ns, header.base_id)
    else:
        last_ns = header.timestamp_ns
    return bool(requested.overlaps(header.timestamp_ns, last_ns))


def _decoded(data: bytes) -> RecordHeader | None:
    try:
        return decode_header(data, 0)
    except (Damaged, Incomplete):
        return None


def _offsets(data: bytes, end: int, salt: int) -> tuple[list[int], int, bool]:
    """Return where the records of a block begin that are whole in it and begin before `end`, where the last ends, and
    False if no record with a right checksum follows. 500 ns a record.
    """
    offsets: list[int] = []
    add = offsets.append
    position = 0
    size = len(data)
    last_head = min(end - 1, size - RECORD_HEADER_BYTES)
    while position <= last_head:
        magic, length, checksum = _read_front(data, position)
        after = position + RECORD_HEADER_BYTES + length
        if magic == MAGIC and after > size:
            break
        if magic != MAGIC or extend(salt, data[position + CHECKED_FROM : after]) != checksum:
            return offsets, position, False
        add(position)
        position = after
    return offsets, position, True
