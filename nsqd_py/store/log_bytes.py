"""The bytes of log files: those that a store has, with their checks, and those of the same files on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.objects.calls import Objects
from nsqd_py.runtime.private_files import open_file
from nsqd_py.store.image import LogSource
from nsqd_py.store.layout import BadObject, StoredFile

# Of a request for a part of an object.
_PIECE_BYTES = 4 * 1024 * 1024
_LOCAL_PIECE_BYTES = 1024 * 1024

# ---- in the store


def read_object(objects: Objects, file: StoredFile) -> Iterator[tuple[int, bytes]]:
    """Yield the object of a log file in pieces, each with its offset after a request.

    Blocks. Raises BadObject if it is damaged, at its end if only its checksum is wrong, and the errors of `Objects`.
    """
    crc = 0
    for start in range(0, file.size_bytes, _PIECE_BYTES):
        end = min(start + _PIECE_BYTES, file.size_bytes)
        data = objects.get_range(file.name, start, end)
        crc = extend(crc, data)
        if len(data) != end - start:
            raise BadObject(f"{file.name} is damaged: it ends at {start + len(data)}")
        yield start, data
    if crc != file.crc:
        raise BadObject(f"{file.name} is damaged: its checksum is wrong")


def read_source(objects: Objects, source: LogSource) -> Iterator[tuple[int, bytes]]:
    """Yield a log file that a store has in pieces, with their offsets: its object, then its tail. Raises as `read_object`."""
    if source.stored is not None:
        yield from read_object(objects, source.stored)
    if source.tail is not None:
        yield from source.tail.pieces()


def read_range(objects: Objects, source: LogSource, start: int, end: int) -> bytes:
    """Return these bytes of a log file that a store has, fewer at its end, unchecked. Blocks. Raises the errors of `Objects`."""
    found: list[bytes] = []
    stored = source.stored
    if stored is not None and start < stored.size_bytes:
        stored_end = min(end, stored.size_bytes)
        found.append(objects.get_range(stored.name, start, stored_end))
    if source.tail is not None:
        for at, data in source.tail.pieces():
            found.append(data[max(0, start - at) : max(0, end - at)])
    return b"".join(found)


# ---- on the disk


def header_of(path: Path) -> FileHeader | None:
    """Return the header of a log file; None if it is damaged. Raises OSError."""
    with open(path, "rb", opener=open_file) as file:
        data = file.read(FILE_HEADER_BYTES)
    try:
        return FileHeader.decode(data)
    except Damaged:
        return None


def salt_of(path: Path) -> int | None:
    """Return the salt of a log file; None if its header is damaged. Raises OSError."""
    header = header_of(path)
    if header is not None:
        return header.salt
    return None


class LogFileEnd(NamedTuple):
    """The number after the last message of a log file, and its latest timestamp."""

    seq: int
    newest_ns: int


def end_of(path: Path) -> LogFileEnd | None:
    """Return the end of a log file; None if its header is damaged. Raises OSError."""
    try:
        file = LogFile.open(path, os.O_RDONLY)
    except Damaged:
        return None
    try:
        recover_file(file, is_last=False)
        return LogFileEnd(file.end_seq, file.newest_ns)
    finally:
        file.close()


def crc_of(file: IO[bytes], size_bytes: int) -> int:
    """Return the crc32c of the next bytes of an open file. Raises OSError."""
    crc = 0
    for start in range(0, size_bytes, _LOCAL_PIECE_BYTES):
        crc = extend(crc, file.read(min(_LOCAL_PIECE_BYTES, size_bytes - start)))
    return crc


def has_bytes_of(path: Path, file: StoredFile) -> bool:
    """True if a local log file begins with the bytes that the object has, or must have. Raises OSError."""
    with open(path, "rb", opener=open_file) as opened:
        return crc_of(opened, file.size_bytes) == file.crc
