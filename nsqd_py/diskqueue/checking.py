"""Checks the records of a log file against their checksums, in bounded memory, without decoding messages.

A scrub, a backup and a standby use this: they read what no consumer reads. Pieces are small, because a thread that checks
records keeps the interpreter, and so the event loop, from running until it reads again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import (
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    MAGIC,
    MESSAGES,
    PUBLISHED,
    RECORD_HEADER_BYTES,
    VERSION,
    Damaged,
    FileHeader,
    decode_header,
    unpack_header,
)

CHECKSUM_AT = 8
ReadAt = Callable[[int, int], bytes]  # (offset, size): fewer bytes only at the end of the file

# Records of 200 bytes: 0.2 ms of processor.
PIECE_BYTES = 64 * 1024


def read_by(descriptor: int) -> ReadAt:
    """Return a function that reads through a descriptor, for threads."""
    return lambda offset, size: os.pread(descriptor, size, offset)


class CheckedPiece(NamedTuple):
    """A part of a file that was checked.

    offset   the end of the last record in it
    damaged  byte ranges (start, end) without a valid record
    """

    offset: int
    damaged: list[Range]


def check_piece(read: ReadAt, salt: int, offset: int, end: int) -> CheckedPiece:
    """Check the records of a file from `offset` on, at least one; `end` is the end of its last record.

    Raises OSError, as `read` does.
    """
    data = read(offset, min(PIECE_BYTES, end - offset))
    position = valid_end(data, salt)
    if position:
        return CheckedPiece(offset + position, [])
    after = _end_of_large(read, data, salt, offset, end)
    if after is not None:
        return CheckedPiece(after, [])
    found = next_valid(read, salt, offset + 1, end)
    return CheckedPiece(found, [(offset, found)])


def damaged_ranges(read: ReadAt, salt: int, end: int, offset: int = FILE_HEADER_BYTES) -> Iterator[Range]:
    """Yield the byte ranges of a file, from `offset` to `end`, in which there is no valid record. Raises OSError."""
    while offset < end:
        piece = check_piece(read, salt, offset, end)
        yield from piece.damaged
        offset = piece.offset


def valid_end(data: bytes, salt: int) -> int:
    """Return the end of the last of the valid records with which these bytes begin; 0 if there is none."""
    position = 0
    last = len(data) - RECORD_HEADER_BYTES
    while position <= last:
        magic, length, checksum, version, kind, _, _, _, _, _, count, _ = unpack_header(data, position)
        after = position + RECORD_HEADER_BYTES + length
        if magic != MAGIC or version != VERSION or kind not in (PUBLISHED, MESSAGES) or not count:
            break
        if after > len(data) or extend(salt, data[position + CHECKED_FROM : after]) != checksum:
            break
        position = after
    return position


def _end_of_large(read: ReadAt, data: bytes, salt: int, offset: int, end: int) -> int | None:
    """Return the end of the record at `offset`, which is larger than `data`, the bytes there; None if it is damaged."""
    after = record_end(data, offset, end)
    if after is None or after <= offset + len(data):
        return None
    checksum = int.from_bytes(data[CHECKSUM_AT:CHECKED_FROM], "little")
    found = extend(salt, data[CHECKED_FROM:])
    position = offset + len(data)
    while position < after:
        piece = read(position, min(PIECE_BYTES, after - position))
        if not piece:
            return None
        found = extend(found, piece)
        position += len(piece)
    return after if found == checksum else None


def record_end(data: bytes, offset: int, end: int) -> int | None:
    """Return the end of the record that begins with `data` at `offset`, by its header; None if no record ends before `end`."""
    if len(data) < RECORD_HEADER_BYTES:
        return None
    magic, length, _, version, kind, _, _, _, _, _, count, _ = unpack_header(data, 0)
    after: int = offset + RECORD_HEADER_BYTES + length
    is_record = magic == MAGIC and version == VERSION and kind in (PUBLISHED, MESSAGES) and count
    return after if is_record and after <= end else None


def next_valid(read: ReadAt, salt: int, offset: int, end: int) -> int:
    """Return the offset of the next valid record from `offset` on, or `end`. Raises OSError, as `read` does."""
    while offset < end:
        data = read(offset, min(PIECE_BYTES, end - offset))
        if len(data) < RECORD_HEADER_BYTES:
            return end
        at = data.find(MAGIC)
        while 0 <= at <= len(data) - RECORD_HEADER_BYTES:
            found = offset + at
            rest = data[at:]
            if valid_end(rest, salt) or _end_of_large(read, rest, salt, found, end) is not None:
                return found
            at = data.find(MAGIC, at + 1)
        # The last bytes may be the beginning of a header.
        offset += len(data) - RECORD_HEADER_BYTES + 1
    return end


def damage_in(path: Path, salt: int | None = None, end: int | None = None, start: int = 0) -> list[Range]:
    """Return the byte ranges of a log file without a valid record, in which a damaged header is one.

    `salt` is the one that the header must have; without it, a file with a damaged header is damaged as a whole. `end` is
    the end of its last record; without it, that is the end of the file. `start` is the begin of the first record that is
    checked; 0 checks the header, too. Raises OSError.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        if end is None:
            end = os.fstat(descriptor).st_size
        found = []
        try:
            header = FileHeader.decode(os.pread(descriptor, FILE_HEADER_BYTES, 0))
            is_right = salt in (None, header.salt)
            salt = salt if salt is not None else header.salt
        except Damaged:
            if salt is None:
                return [(0, end)]
            is_right = False
        if not is_right and not start:
            found.append((0, FILE_HEADER_BYTES))
        return [*found, *damaged_ranges(read_by(descriptor), salt, end, max(start, FILE_HEADER_BYTES))]


def numbers_in(path: Path, salt: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the sequence numbers of the valid records in these byte ranges of a log file. Raises OSError."""
    found = []
    with open(path, "rb", buffering=0) as file:
        read = read_by(file.fileno())
        for offset, end in ranges:
            while offset < end:
                head = read(offset, RECORD_HEADER_BYTES)
                after = record_end(head, offset, end)
                if after is None or next(damaged_ranges(read, salt, after, offset), None) is not None:
                    offset = next_valid(read, salt, offset + 1, end)
                    continue
                record = decode_header(head, 0)
                found.append((record.first_seq, record.end_seq))
                offset = after
    return found
