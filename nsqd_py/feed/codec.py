"""The pieces of a feed as bytes, little-endian. A stream to a standby has them, and the rounds of a store.

WRITE    u8 1, name length u16, offset u64, name, bytes    write them there; the file may be new
BEGIN    u8 2, name length u16, u64 0, name                begin a new version of the file
PART     u8 3, as WRITE                                    write to the new version
COMMIT   u8 4, as BEGIN                                    replace the file by the new version
REMOVE   u8 5, as BEGIN                                    remove the file
TOPIC    u8 6, JSON                                        what nsqd has of a topic, see `TopicListing`
LISTED   u8 7                                              nsqd has no other topics
"""

from __future__ import annotations

import json
from dataclasses import asdict
from struct import Struct
from typing import Any, NamedTuple

from nsqd_py.diskqueue.journals.epochs import decode_epochs
from nsqd_py.errors import NsqdError
from nsqd_py.feed.pieces import Begin, Commit, Part, Piece, Remove, TopicListing, TopicsListed, Write
from nsqd_py.runtime.documents import checked_number, load_member_json

WRITE, BEGIN, PART, COMMIT, REMOVE, TOPIC, LISTED = range(1, 8)

_KINDS: dict[type, int] = {Write: WRITE, Begin: BEGIN, Part: PART, Commit: COMMIT, Remove: REMOVE}
_FILE_HEAD = Struct("<BHQ")
_MOST_URL = 2048


class BadPiece(NsqdError):
    """The bytes are no piece of a feed; the text says why."""


class FileMessage(NamedTuple):
    """A WRITE, BEGIN, PART, COMMIT or REMOVE; `data` is empty in a BEGIN, COMMIT and REMOVE."""

    kind: int
    name: str
    offset: int
    data: memoryview


Message = FileMessage | TopicListing | TopicsListed


def encode(piece: Piece) -> tuple[bytes, ...]:
    """Return the bytes of a piece, in parts that the caller joins with others."""
    if isinstance(piece, TopicListing):
        return bytes([TOPIC]), _encode_listing(piece)
    if isinstance(piece, TopicsListed):
        return (bytes([LISTED]),)
    kind = _KINDS[type(piece)]
    if isinstance(piece, Write | Part):
        return file_parts(kind, piece.name, piece.offset, piece.data)
    return file_parts(kind, piece.name)


def _encode_listing(listing: TopicListing) -> bytes:
    fields = asdict(listing)
    if not listing.only_stored:  # earlier versions have neither
        del fields["only_stored"], fields["store"]
    return json.dumps(fields).encode()


def file_parts(kind: int, name: str, offset: int = 0, data: bytes = b"") -> tuple[bytes, ...]:
    """Return the parts of a WRITE, BEGIN, PART, COMMIT or REMOVE."""
    encoded = name.encode()
    return _FILE_HEAD.pack(kind, len(encoded), offset), encoded, data


def decode(data: bytes | memoryview) -> Message:
    """Return the piece in these bytes. Raises BadPiece."""
    kind = data[0] if data else 0
    try:
        if WRITE <= kind <= REMOVE:
            return _file_message(data)
        if kind == TOPIC:
            return _listing(load_member_json(bytes(data[1:])))
        if kind == LISTED:
            return TopicsListed()
    except Exception as error:
        raise BadPiece(f"a message of kind {kind} is damaged: {error!r}") from error
    raise BadPiece(f"a message of the unknown kind {kind}")


def _file_message(data: bytes | memoryview) -> FileMessage:
    kind, name_bytes, offset = _FILE_HEAD.unpack_from(data)
    name_end = _FILE_HEAD.size + name_bytes
    name = str(data[_FILE_HEAD.size : name_end], "utf-8")
    return FileMessage(kind, name, offset, memoryview(data)[name_end:])


def _listing(fields: dict[str, Any]) -> TopicListing:
    files = {name: checked_number(offset) for name, offset in fields["files"].items()}
    next_seq = checked_number(fields["next_seq"])
    journals = list(map(str, fields["journals"]))
    only_stored = checked_number(fields.get("only_stored", 0))
    store = str(fields.get("store", ""))[:_MOST_URL]
    epochs = decode_epochs(fields["epochs"])
    return TopicListing(str(fields["topic"]), epochs, next_seq, files, journals, only_stored, store)
