"""Formats and compressions of files: recognised by what a file holds, then by its name."""

from __future__ import annotations

import re
import zlib
from enum import StrEnum

import orjson
import pyarrow as pa

from nsqd_py.diskqueue.files import parse_log_file_name
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FILE_MAGIC, MAGIC, MESSAGES, RECORD_HEADER_BYTES
from nsqd_py.go_import.go_files import GoFileKind, parse_go_name

# The part of a file that is read to recognise it: it holds all of the first block of a zstd frame.
HEAD_BYTES = 160 * 1024
_PEEK_BYTES = 64 * 1024
_KIND_AT = FILE_HEADER_BYTES + 13


class Format(StrEnum):
    """How messages are stored in a file."""

    LINES = "lines"
    JSONL = "jsonl"
    FRAMED = "framed"
    PARQUET = "parquet"
    TOPIC_LOG = "topic_log"
    GO_QUEUE = "go_queue"

    @property
    def can_be_split(self) -> bool:
        """True if a reader finds the first message behind any place of a file that is not compressed as a whole."""
        return self is not Format.GO_QUEUE

    @property
    def has_timestamps(self) -> bool:
        return self is not Format.LINES


class Compression(StrEnum):
    """How a file is compressed as a whole."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


COMPRESSION_MAGIC = {Compression.GZIP: b"\x1f\x8b\x08", Compression.ZSTD: b"\x28\xb5\x2f\xfd"}
_COMPRESSION_SUFFIXES = {".gz": Compression.GZIP, ".zst": Compression.ZSTD, ".zstd": Compression.ZSTD}
_FORMAT_SUFFIXES = {".framed": Format.FRAMED, ".parquet": Format.PARQUET, ".jsonl": Format.JSONL}
_JSONL_START = re.compile(rb'\{"timestamp":-?\d+,"id":"')
_PARQUET_MAGIC = b"PAR1"


def recognised_compression(name: str, head: bytes) -> Compression:
    """Return how a file is compressed. One that only begins with a magic number is not: the body of a message may."""
    for suffix, compression in _COMPRESSION_SUFFIXES.items():
        if name.endswith(suffix):
            return compression
    for compression, magic in COMPRESSION_MAGIC.items():
        if head.startswith(magic) and plain_head(head, compression):
            return compression
    return Compression.NONE


def recognised_format(name: str, head: bytes) -> Format:
    """Return the format of a file that begins with `head`, decompressed; lines if nothing else fits, as with Go's
    nsq_to_file.
    """
    plain_name = name_without_compression(name)
    is_log = parse_log_file_name(plain_name) is not None
    if parse_go_queue_name(plain_name):  # it has no magic number, and its messages may hold any
        return Format.GO_QUEUE
    if head.startswith(FILE_MAGIC) or head[FILE_HEADER_BYTES:].startswith(MAGIC):
        return Format.TOPIC_LOG if is_log or _begins_with_published(head) else Format.FRAMED
    if head.startswith(_PARQUET_MAGIC):
        return Format.PARQUET
    if is_log:
        return Format.TOPIC_LOG
    if _is_jsonl(head):
        return Format.JSONL
    return next((form for suffix, form in _FORMAT_SUFFIXES.items() if plain_name.endswith(suffix)), Format.LINES)


def _begins_with_published(head: bytes) -> bool:
    has_record = head[FILE_HEADER_BYTES:].startswith(MAGIC) and len(head) >= FILE_HEADER_BYTES + RECORD_HEADER_BYTES
    return has_record and head[_KIND_AT] != MESSAGES


def _is_jsonl(head: bytes) -> bool:
    """True if the first line is an object with the keys of `jsonl`; if it is longer than the head, if it begins so."""
    line, newline, _ = head.lstrip(b"\n").partition(b"\n")
    if _JSONL_START.match(line):
        return True
    if not newline or not line.startswith(b"{"):
        return False
    try:
        keys = orjson.loads(line).keys()
    except orjson.JSONDecodeError:
        return False
    return {"timestamp", "id"} <= keys and bool({"body", "body_base64"} & keys)


def name_without_compression(name: str) -> str:
    for suffix in _COMPRESSION_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def parse_go_queue_name(name: str) -> tuple[str, str | None, int] | None:
    """Return (topic, channel or None, number) of a file of Go's disk queue; None for another file."""
    parsed = parse_go_name(name)
    if parsed is None or parsed.kind is not GoFileKind.MESSAGES:
        return None
    return parsed.topic, parsed.channel, parsed.number


def plain_head(head: bytes, compression: Compression) -> bytes:
    """Return how a file begins once it is decompressed; less of it, or nothing, if it is damaged."""
    if compression is Compression.GZIP:
        try:
            return zlib.decompressobj(wbits=31).decompress(head, _PEEK_BYTES)
        except zlib.error:
            return b""
    return _zstd_head(head) if compression is Compression.ZSTD else head


def _zstd_head(head: bytes) -> bytes:
    # A read that goes beyond the end returns nothing, so smaller reads are tried.
    for size in (_PEEK_BYTES, 1024, FILE_HEADER_BYTES + RECORD_HEADER_BYTES, len(_PARQUET_MAGIC)):
        try:
            found: bytes = pa.CompressedInputStream(pa.BufferReader(head), "zstd").read(size)
        except OSError:
            continue
        return found
    return b""
