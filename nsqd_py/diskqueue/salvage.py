"""A log file whose header is damaged: its records tell what the header said.

The checksum of a record is begun with the salt of its file, and crc32c is linear: two checksums over the same bytes
differ by a linear map of how they were begun, which can be turned around.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from google_crc32c import extend

from nsqd_py.diskqueue.damage import write_aside
from nsqd_py.diskqueue.records import (
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    MAGIC,
    RECORD_HEADER_BYTES,
    Damaged,
    FileHeader,
    Incomplete,
    RecordHeader,
    decode_header,
)

_WORD_BITS = 32
_RECORDS_TRIED = 8


def salvage_header(data: bytes | mmap.mmap, first_seq: int) -> FileHeader | None:
    """The header that a log file must have had whose records begin with `first_seq`, as its name says.

    Two records have to agree on the salt, or one with what is left of the header. None where they do not.
    """
    if len(data) <= FILE_HEADER_BYTES:
        return None
    left = data[:FILE_HEADER_BYTES]
    believed = {FileHeader.unchecked(left).salt}
    for header, position in _records(data):
        salt = _salt_of(data, header, position)
        if salt is None or header.first_seq < first_seq:
            continue
        if salt in believed:
            return _header(salt, first_seq, left)
        believed.add(salt)
    return None


def salvage_from(descriptor: int, first_seq: int) -> FileHeader | None:
    """As `salvage_header`, of an open file. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size <= FILE_HEADER_BYTES:
        return None
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
        return salvage_header(data, first_seq)


def mend_header(path: Path, first_seq: int) -> bool:
    """Write a log file's header anew, where it can be known; the old one is kept beside it. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        header = salvage_from(descriptor, first_seq)
        if header is None:
            return False
        aside = path.with_name(f"{path.stem}.0.damaged")
        if not aside.exists():
            write_aside(aside, os.pread(descriptor, FILE_HEADER_BYTES, 0))
        os.pwrite(descriptor, header.encode(), 0)
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def _header(salt: int, first_seq: int, left: bytes) -> FileHeader:
    """With the other fields as they are left, where that leads to the checksum; else without the highest id."""
    stored = FileHeader.unchecked(left)
    for flags in product((False, True), repeat=3):
        header = FileHeader(salt, first_seq, stored.used_id, *flags)
        if header.encode()[12:16] == left[12:16]:
            return header
    return FileHeader(salt, first_seq, 0, stored.is_reused, stored.is_sparse, stored.is_imported)


def _records(data: bytes | mmap.mmap) -> Iterator[tuple[RecordHeader, int]]:
    """Where the first records seem to be."""
    position = data.find(MAGIC, 0)
    for _ in range(_RECORDS_TRIED):
        if position < 0:
            return
        try:
            header = decode_header(data[position : position + RECORD_HEADER_BYTES], 0)
        except (Damaged, Incomplete):
            after = position + 1
        else:
            yield header, position
            after = position + header.record_bytes
        position = data.find(MAGIC, after)


def _salt_of(data: bytes | mmap.mmap, header: RecordHeader, position: int) -> int | None:
    """How its checksum was begun; None where the record is cut off."""
    checked = data[position + CHECKED_FROM : position + header.record_bytes]
    if len(checked) != header.record_bytes - CHECKED_FROM:
        return None
    return beginning_of(header.checksum ^ extend(0, checked), len(checked))


def beginning_of(difference: int, length: int) -> int:
    """The number c for which extend(c, data) ^ extend(0, data) is `difference`, for any data of this length."""
    zeros = bytes(length)
    plain = extend(0, zeros)
    rows = [(extend(1 << bit, zeros) ^ plain, 1 << bit) for bit in range(_WORD_BITS)]
    beginning = 0
    for bit in reversed(range(_WORD_BITS)):  # Gauss: one row with this bit takes it out of all others
        place = next(index for index, (image, _) in enumerate(rows) if image >> bit & 1)
        pivot, source = rows.pop(place)
        rows = [(image ^ pivot, begun ^ source) if image >> bit & 1 else (image, begun) for image, begun in rows]
        if difference >> bit & 1:
            difference ^= pivot
            beginning ^= source
    return beginning
