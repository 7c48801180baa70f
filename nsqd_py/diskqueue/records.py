"""A batch as a record in a file.

All numbers are little-endian. A record is a header of 56 bytes and the batch's body:

    magic       4 bytes  `NSQr`
    length      u32      of the body
    checksum    u32      crc32c of the rest of the header and the body, begun with the salt of the file
    version     u8       1
    kind        u8       1 published: one timestamp, ids in a row, the body as it was published
                         2 messages: each message with its own id, timestamp, attempts and due time
    flags       u16      1: the body is zstd-compressed
    first_seq   u64      sequence number of the first message
    base_id     u64      id of the first message
    timestamp   i64      ns since the epoch
    due         i64      ns since the epoch; 0: at once
    count       u32      messages
    stride      u32      see `Batch`

A file begins with a header of 64 bytes: magic `NSQf`, version u16, flags u16, salt u32, checksum u32, first sequence
number u64, highest id used before u64, zeros. The checksum covers the first 32 bytes, with zeros for itself. The
flags are 1: made from a used file; 2: sparse, without messages that no channel needs; 4: imported from Go's queues. Each
file has another salt, so that old records in a reused file are never taken for its own. Later versions of the format
must keep magic, version and checksum as they are: earlier programs distinguish them from damage by these.

Kind 2 and compression are for archives (`messages` has their format); nsqd writes kind 1. Each record begins with its
magic so that a reader finds the next one behind damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, Protocol

from google_crc32c import extend

from nsqd_py.errors import NsqdError, StartError
from nsqd_py.protocol.batch import Batch

MAGIC = b"NSQr"
FILE_MAGIC = b"NSQf"
VERSION = 1
PUBLISHED = 1
MESSAGES = 2
FLAG_ZSTD = 1
FLAG_REUSED = 1
FLAG_SPARSE = 2
FLAG_IMPORTED = 4

_HEADER = Struct("<4sIIBBHQQqqII")
_FRONT = Struct("<4sII")
_CHECKED = Struct("<BBHQQqqII")
_FILE_HEADER = Struct("<4sHHIIQQ")

unpack_header = _HEADER.unpack_from
_pack_front = _FRONT.pack
_pack_checked = _CHECKED.pack

RECORD_HEADER_BYTES = _HEADER.size
FILE_HEADER_BYTES = 64
CHECKED_FROM = _FRONT.size
_CHECK_AT_ONCE_BELOW = 1024


class Data(Protocol):
    """The bytes of a file: `bytes`, an `mmap`, or a window on the file, such as `file_bytes.FileBytes`."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...

    def find(self, pattern: bytes, start: int, /) -> int: ...


class Incomplete(NsqdError):
    """The bytes end inside a record, which takes `needed` bytes."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"a record of {needed} bytes is cut off")
        self.needed = needed


class Damaged(NsqdError):
    """These bytes are not a record, or its checksum is wrong."""


class NewerFormat(Damaged, StartError):
    """The bytes are whole, and in a format of a later version of nsqd-py; `found` says in which.

    To readers of archives they are damaged. nsqd and its check refuse the whole directory.
    """

    def __init__(self, found: str) -> None:
        super().__init__(f"a newer version of nsqd-py wrote this: {found}")
        self.found = found

    def refusal(self, path: str) -> StartError:
        """Return the error that names the file, and says what to do."""
        return StartError(
            f"{path} was written by a newer version of nsqd-py ({self.found}): start that version or a later one on "
            "this directory, or use another --data-path"
        )


# ---- the header of a file


class FileHeader(NamedTuple):
    """The header of a log file."""

    salt: int
    first_seq: int
    used_id: int
    is_reused: bool = False
    is_sparse: bool = False
    is_imported: bool = False

    def encode(self) -> bytes:
        return self._pack(extend(0, self._pack(0))).ljust(FILE_HEADER_BYTES, b"\0")

    def _pack(self, checksum: int) -> bytes:
        flags = FLAG_REUSED * self.is_reused | FLAG_SPARSE * self.is_sparse | FLAG_IMPORTED * self.is_imported
        return _FILE_HEADER.pack(
            FILE_MAGIC, VERSION, flags, self.salt, checksum, self.first_seq, self.used_id
        )

    @classmethod
    def decode(cls, data: bytes) -> FileHeader:
        """Decode and verify a header. Raises Damaged, or NewerFormat."""
        header = cls.unchecked(data)
        magic, version, _, _, checksum, _, _ = _FILE_HEADER.unpack_from(data)
        if magic == FILE_MAGIC and version > VERSION and _file_checksum(data) == checksum:
            raise NewerFormat(f"format {version}; this version reads format {VERSION}")
        is_right = header.encode()[12:16] == checksum.to_bytes(4, "little")
        if magic != FILE_MAGIC or version != VERSION or not is_right:
            raise Damaged("the file header is not one of nsqd-py, or damaged")
        return header

    @classmethod
    def unchecked(cls, data: bytes) -> FileHeader:
        """Decode a header without verifying it. Raises Damaged if it is cut off."""
        if len(data) < FILE_HEADER_BYTES:
            raise Damaged("the file header is cut off")
        _, _, flags, salt, _, first_seq, used_id = _FILE_HEADER.unpack_from(data)
        flagged = (bool(flags & flag) for flag in (FLAG_REUSED, FLAG_SPARSE, FLAG_IMPORTED))
        return cls(salt, first_seq, used_id, *flagged)


def _file_checksum(data: bytes) -> int:
    """Return the checksum that a file header of any version must have."""
    return int(extend(0, data[:12] + bytes(4) + data[16 : _FILE_HEADER.size]))


# ---- records


def encode_header(batch: Batch, salt: int) -> bytes:
    """Return the header of a batch's record; the body follows it unchanged."""
    checked = _checked_header(batch)
    body = batch.body
    return _pack_front(MAGIC, len(body), extend(extend(salt, checked), body)) + checked


def encode_record(batch: Batch, salt: int) -> bytes:
    """Return the record of a small batch in one piece."""
    body = batch.body
    checked = _checked_header(batch) + body
    return _pack_front(MAGIC, len(body), extend(salt, checked)) + checked


def _checked_header(batch: Batch) -> bytes:
    """Return the part of the header that the checksum covers."""
    return _pack_checked(
        VERSION,
        PUBLISHED,
        0,
        batch.first_seq,
        batch.base_id,
        batch.timestamp_ns,
        batch.due_ns,
        batch.count,
        batch.stride,
    )


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of a record; decoding it does not verify the checksum."""

    length: int
    checksum: int
    kind: int
    flags: int
    first_seq: int
    base_id: int
    timestamp_ns: int
    due_ns: int
    count: int
    stride: int

    @property
    def record_bytes(self) -> int:
        return RECORD_HEADER_BYTES + self.length

    @property
    def end_seq(self) -> int:
        return self.first_seq + self.count


def encode_fields(body: bytes, salt: int, *fields: int) -> bytes:
    """Return a record of any kind; `fields` are those of the header from the kind on."""
    checked = _pack_checked(VERSION, *fields)
    return _pack_front(MAGIC, len(body), extend(extend(salt, checked), body)) + checked + body


def decode_header(data: Data, position: int) -> RecordHeader:
    """Return the header at `position`. Raises Incomplete and Damaged."""
    if len(data) - position < RECORD_HEADER_BYTES:
        raise Incomplete(RECORD_HEADER_BYTES)
    fields = unpack_header(data[position : position + RECORD_HEADER_BYTES])
    magic, length, checksum, version, *others = fields
    header = RecordHeader(length, checksum, *others)
    if magic != MAGIC or version != VERSION:
        raise Damaged("no record here")
    if header.kind not in (PUBLISHED, MESSAGES) or not header.count:
        raise Damaged("no record here")
    return header


def decode(data: bytes, position: int, salt: int) -> tuple[Batch, int]:
    """Return the batch at `position` and the position of the next record. Raises Incomplete and Damaged."""
    if len(data) - position < RECORD_HEADER_BYTES:
        raise Incomplete(RECORD_HEADER_BYTES)
    (
        magic,
        length,
        checksum,
        version,
        kind,
        flags,
        first_seq,
        base_id,
        timestamp_ns,
        due_ns,
        count,
        stride,
    ) = unpack_header(data, position)
    if magic != MAGIC or version != VERSION:
        raise Damaged("no record here")
    if kind != PUBLISHED or flags != 0 or count == 0:  # none that a log has
        raise Damaged("no record here")
    body_from = position + RECORD_HEADER_BYTES
    after = body_from + length
    if after > len(data):
        raise Incomplete(RECORD_HEADER_BYTES + length)
    body = data[body_from:after]
    if length < _CHECK_AT_ONCE_BELOW:  # one call less, of two that take 0.3 us each
        found = extend(salt, data[position + CHECKED_FROM : after])
    else:
        found = extend(extend(salt, data[position + CHECKED_FROM : body_from]), body)
    if found != checksum:
        raise Damaged("the checksum does not match")
    return Batch(first_seq, base_id, timestamp_ns, due_ns, count, stride, body), after


def checked_header(data: Data, position: int, salt: int) -> RecordHeader:
    """Return the header of the record at `position` after verifying its checksum. Raises Incomplete and Damaged."""
    header = decode_header(data, position)
    after = position + header.record_bytes
    if after > len(data):
        raise Incomplete(header.record_bytes)
    if extend(salt, data[position + CHECKED_FROM : after]) != header.checksum:
        raise Damaged("the checksum does not match")
    return header


def next_record(data: Data, start: int, salt: int) -> int | None:
    """Return the position of the first valid record of any kind, from `start` on, or None."""
    position = data.find(MAGIC, start)
    while position >= 0:
        try:
            checked_header(data, position, salt)
        except (Damaged, Incomplete):
            position = data.find(MAGIC, position + 1)
        else:
            return position
    return None


# What reading a file raises that is no log; a record may have other messages than its header says.
NO_LOG = (Damaged, Incomplete, struct.error, IndexError)


def batches_in(file: bytes, salt: int) -> Iterator[Batch]:
    """Yield the batches of a whole file, such as an answer to /topic/read. Raises Incomplete and Damaged."""
    position = FILE_HEADER_BYTES
    while position < len(file):
        batch, position = decode(file, position, salt)
        yield batch
