"""A round object: the pieces of a feed that one put stores, for all topics.

magic     4 bytes  `NSQs`
version   u16      1
flags     u16      1 mark: a round of the feed ends with it, and what it covers is stored
                   2 base: the state begins here, without what was before
                   4 takeover: it has no pieces; another writer begins here
number    u64      as in its name; all are little-endian
epoch     u64      of the claim that its writer has made
writer    8 bytes  random id of that process
time      i64      ns since the epoch, when it was made
length    u32      of the payload
payload            frames: u32 length, and a message of `nsqd_py.feed.codec`, or FILES
checksum  u32      crc32c of all bytes before

FILES     u8 16, JSON {"added": [...], "removed": [...]}    log files that are in the store as objects
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.feed import codec
from nsqd_py.feed.pieces import Piece
from nsqd_py.runtime.documents import BAD_CONTENT, load_member_json
from nsqd_py.store.layout import BadObject, StoredFile, decode_stored_file, round_name

MAGIC = b"NSQs"
VERSION = 1
MARK, BASE, TAKEOVER = 1, 2, 4
FILES = 16
# A round that is longer is put as several objects. A single message may be as long as a body of a command.
ROUND_BYTES = 8 * 1024 * 1024

_HEADER = Struct("<4sHHQQ8sqI")
HEADER_BYTES = _HEADER.size
_LENGTH = Struct("<I")
_CHECKSUM = Struct("<I")
_FRAME_BYTES = _LENGTH.size
# A round without content is as long as this.
TAKEOVER_BYTES = _HEADER.size + _CHECKSUM.size


class FilesChanged(NamedTuple):
    """A FILES: log files that are in the store as objects from now on, and names of those that will be deleted."""

    added: tuple[StoredFile, ...] = ()
    removed: tuple[str, ...] = ()


Message = codec.Message | FilesChanged


class RoundObject(NamedTuple):
    """The content of a round object; `payload` has the frames."""

    number: int
    epoch: int
    writer: str
    time_ns: int
    flags: int = 0
    payload: bytes = b""

    @property
    def is_mark(self) -> bool:
        return bool(self.flags & MARK)

    @property
    def is_base(self) -> bool:
        return bool(self.flags & BASE)

    @property
    def is_takeover(self) -> bool:
        return bool(self.flags & TAKEOVER)

    @property
    def name(self) -> str:
        return round_name(self.number)

    def encode(self) -> bytes:
        writer = bytes.fromhex(self.writer)
        size_bytes = len(self.payload)
        header = _HEADER.pack(
            MAGIC, VERSION, self.flags, self.number, self.epoch, writer, self.time_ns, size_bytes
        )
        checksum = extend(extend(0, header), self.payload)
        return b"".join((header, self.payload, _CHECKSUM.pack(checksum)))

    def content(self) -> Iterator[Message]:
        """Yield what the payload has. Raises BadObject."""
        view = memoryview(self.payload)
        position = 0
        while position < len(view):
            start = position + _FRAME_BYTES
            if start > len(view):
                raise BadObject(f"{self.name} has a frame that is cut off")
            (size_bytes,) = _LENGTH.unpack_from(view, position)
            position = start + size_bytes
            if position > len(view):
                raise BadObject(f"{self.name} has a frame that is cut off")
            yield self._decode(view[start:position])

    def _decode(self, frame: memoryview) -> Message:
        try:
            if frame and frame[0] == FILES:
                return _files_changed(bytes(frame[1:]))
            return codec.decode(frame)
        except codec.BadPiece as error:
            raise BadObject(f"{self.name} has {error}") from error


def decode(number: int, data: bytes) -> RoundObject:
    """Return the round object with this number. Raises BadObject if the bytes are not such an object."""
    name = round_name(number)
    if len(data) < TAKEOVER_BYTES:
        raise BadObject(f"{name} is damaged: it has only {len(data)} bytes")
    magic, version, flags, found, epoch, writer, time_ns, size_bytes = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadObject(f"{name} is foreign: it does not begin as a round of nsqd-py")
    end = len(data) - _CHECKSUM.size
    if _CHECKSUM.unpack_from(data, end)[0] != extend(0, bytes(data[:end])):
        raise BadObject(f"{name} is damaged: its checksum is wrong")
    if version != VERSION:
        raise BadObject(f"{name} was written by a later version of nsqd-py, in format {version}")
    if size_bytes != end - _HEADER.size:
        raise BadObject(f"{name} is damaged: it has {end - _HEADER.size} bytes of content, not {size_bytes}")
    if found != number:
        raise BadObject(f"{name} is foreign: it has the number {found}")
    return RoundObject(number, epoch, writer.hex(), time_ns, flags, data[_HEADER.size : end])


def begins_base(header: bytes) -> bool:
    """True if these first bytes of an object, `HEADER_BYTES` of them, are those of a round that begins a base."""
    if len(header) < HEADER_BYTES:
        return False
    magic, version, flags, *_ = _HEADER.unpack_from(header)
    return magic == MAGIC and version == VERSION and bool(flags & BASE)


# ---- frames


def piece_frame(piece: Piece) -> bytes:
    """Return the frame of a piece of a feed."""
    return _frame(*codec.encode(piece))


def files_frame(added: Iterable[StoredFile] = (), removed: Iterable[str] = ()) -> bytes:
    """Return the frame that changes which log files are in the store as objects."""
    document = {"added": list(added), "removed": list(removed)}
    return _frame(bytes([FILES]), json.dumps(document).encode())


def _frame(*parts: bytes) -> bytes:
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def _files_changed(body: bytes) -> FilesChanged:
    try:
        document = load_member_json(body)
        added = tuple(map(decode_stored_file, document["added"]))
        removed = tuple(map(_checked_text, document["removed"]))
    except BAD_CONTENT as error:
        raise codec.BadPiece(f"a list of files that is damaged: {error!r}") from error
    return FilesChanged(added, removed)


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!a:.50} is no name")
    return value
