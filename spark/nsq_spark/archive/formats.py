"""What kind of file it is: by what it holds, then by its name."""

from __future__ import annotations

import re
import zlib
from enum import StrEnum

import orjson
import pyarrow as pa

from nsqd_py.diskqueue.files import parse_log_file_name
from nsqd_py.diskqueue.go_files import GoFileKind, parse_go_name
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FILE_MAGIC, MAGIC, MESSAGES, RECORD_HEADER_BYTES

# Of a file, to know what it is: the first block of a zstd frame is in it, whole.
HEAD_BYTES = 160 * 1024
_PEEK_BYTES = 64 * 1024
_KIND_AT = FILE_HEADER_BYTES + 13


class Format(StrEnum):
    """How messages are kept in a file."""

    LINES = "lines"
    JSONL = "jsonl"
    FRAMED = "framed"
    PARQUET = "parquet"
    TOPIC_LOG = "topic_log"
    GO_QUEUE = "go_queue"

    @property
    def can_be_split(self) -> bool:
        """Whether a reader finds the first message behind any place, if the file is not compressed as a whole."""
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
    """A file that only begins as if it were compressed is not: so may the body of a message."""
    for suffix, compression in _COMPRESSION_SUFFIXES.items():
        if name.endswith(suffix):
            return compression
    for compression, magic in COMPRESSION_MAGIC.items():
        if head.startswith(magic) and plain_head(head, compression):
            return compression
    return Compression.NONE


def recognised_format(name: str, head: bytes) -> Format:
    """`head` is how the file begins, decompressed. What nothing is known of is lines, as with Go's nsq_to_file."""
    plain_name = name_without_compression(name)
    if parse_go_queue_name(plain_name):  # it has no magic number, and its messages may hold any
        return Format.GO_QUEUE
    if head.startswith(FILE_MAGIC) or head[FILE_HEADER_BYTES:].startswith(MAGIC):
        return _kind_of_records(plain_name, head)
    if head.startswith(_PARQUET_MAGIC):
        return Format.PARQUET
    if parse_log_file_name(plain_name):
        return Format.TOPIC_LOG
    if _is_jsonl(head):
        return Format.JSONL
    return next((form for suffix, form in _FORMAT_SUFFIXES.items() if plain_name.endswith(suffix)), Format.LINES)


def _kind_of_records(name: str, head: bytes) -> Format:
    has_record = head[FILE_HEADER_BYTES:].startswith(MAGIC) and len(head) >= FILE_HEADER_BYTES + RECORD_HEADER_BYTES
    if parse_log_file_name(name) or (has_record and head[_KIND_AT] != MESSAGES):
        return Format.TOPIC_LOG
    return Format.FRAMED


def _is_jsonl(head: bytes) -> bool:
    """Whether the first line is an object with the keys of `jsonl`; one that is longer than the head, begins so."""
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


# ---- names


def name_without_compression(name: str) -> str:
    for suffix in _COMPRESSION_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def parse_go_queue_name(name: str) -> tuple[str, str | None, int] | None:
    """(topic, channel or None, number) of a file of Go's disk queue; None for another."""
    parsed = parse_go_name(name)
    if parsed is None or parsed.kind is not GoFileKind.MESSAGES:
        return None
    return parsed.topic, parsed.channel, parsed.number


# ---- compressed ones


def plain_head(head: bytes, compression: Compression) -> bytes:
    """How the file begins once it is decompressed; less of it, or nothing, where it is damaged."""
    if compression is Compression.GZIP:
        return _gzip_head(head)
    return _zstd_head(head) if compression is Compression.ZSTD else head


def _gzip_head(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _PEEK_BYTES)
    except zlib.error:
        return b""


def _zstd_head(head: bytes) -> bytes:
    """A read that goes beyond what there is gives nothing, so it is tried with less."""
    for size in (_PEEK_BYTES, 1024, FILE_HEADER_BYTES + RECORD_HEADER_BYTES, len(_PARQUET_MAGIC)):
        try:
            found: bytes = pa.CompressedInputStream(pa.BufferReader(head), "zstd").read(size)
        except OSError:
            continue
        return found
    return b""
