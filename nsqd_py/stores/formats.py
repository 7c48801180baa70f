"""The kind of a file: its compression and the format of its messages, by how it begins and by its name."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum

import cramjam

from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FILE_MAGIC, MAGIC, MESSAGES, RECORD_HEADER_BYTES
from nsqd_py.runtime.documents import begins_with_message
from nsqd_py.stores.compression import CODECS, GZIP, NONE, ZSTD, Codec

# The part of a file that is read to recognise it: it holds all of the first block of a zstd frame.
HEAD_BYTES = 160 * 1024
_PLAIN_HEAD_BYTES = 64 * 1024
PARQUET_MAGIC = b"PAR1"
# Columns of messages; a file or a table may have others.
COLUMNS = {"topic", "channel", "timestamp", "timestamp_ns", "id", "attempts", "body", "nsqd"}
LONGEST_LINE_BYTES = 64 * 1024 * 1024
_GREATEST_GZIP_FLAGS = b"\x1f"
_KIND_AT = 13  # in the header of a record

# How a file begins that is no text, whatever it is.
MAGICS = (FILE_MAGIC, PARQUET_MAGIC, *(codec.magic for codec in CODECS.values() if codec.magic))

_COMPRESSION_SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".zstd": ZSTD}


class Format(StrEnum):
    """The format of messages in a file."""

    LINES = "lines"
    JSONL = "jsonl"
    FRAMED = "framed"
    PARQUET = "parquet"
    TOPIC_LOG = "topic_log"

    @property
    def has_timestamps(self) -> bool:
        return self is not Format.LINES


def name_without_compression(name: str) -> str:
    for suffix in _COMPRESSION_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def codec_of(name: str, head: bytes) -> Codec:
    """Return how a file is compressed as a whole. One that only begins with a magic number is not: the body of a message may."""
    if head.startswith((FILE_MAGIC, PARQUET_MAGIC)):  # whatever its name says, its parts are compressed
        return CODECS[NONE]
    for suffix, codec_name in _COMPRESSION_SUFFIXES.items():
        if name.endswith(suffix):
            return CODECS[codec_name]
    for codec in CODECS.values():
        if codec.magic and head.startswith(codec.magic) and plain_head(head, codec):
            return codec
    return CODECS[NONE]


def plain_head(head: bytes, codec: Codec) -> bytes:
    """Return how a file begins once it is decompressed; less of it, or nothing, if it is damaged."""
    if codec.name == ZSTD:
        buffer = bytearray(_PLAIN_HEAD_BYTES)
        # The frame does not end in the head, or has more than the buffer.
        with suppress(cramjam.DecompressionError):
            cramjam.zstd.decompress_into(head, buffer)
        return bytes(buffer).rstrip(b"\0")
    # ISA-L takes them, as in a line that begins so.
    if codec.name == GZIP and head[3:4] > _GREATEST_GZIP_FLAGS:
        return b""
    plain = b""
    for piece in codec.pieces(head, 0):  # the first member may be empty, or end in a line
        plain += piece.data
        if len(plain) >= _PLAIN_HEAD_BYTES:
            break
    return plain


def format_of(name: str, head: bytes) -> Format:
    """Return the format of a file that begins with `head`, decompressed; lines if nothing else fits, as with Go's
    nsq_to_file.
    """
    plain_name = name_without_compression(name)
    is_log = parse_log_file_name(plain_name) is not None
    record = head[FILE_HEADER_BYTES : FILE_HEADER_BYTES + RECORD_HEADER_BYTES]
    has_record = record.startswith(MAGIC)
    if has_record or head.startswith(FILE_MAGIC):
        is_published = has_record and len(record) == RECORD_HEADER_BYTES and record[_KIND_AT] != MESSAGES
        if is_log or is_published:
            return Format.TOPIC_LOG
        return Format.FRAMED
    if head.startswith(PARQUET_MAGIC):
        return Format.PARQUET
    if is_log:
        return Format.TOPIC_LOG
    if begins_with_message(head):
        return Format.JSONL
    for form in (Format.FRAMED, Format.PARQUET, Format.JSONL):
        if plain_name.endswith(f".{form}"):
            return form
    return Format.LINES
