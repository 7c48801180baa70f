"""Records of kind `messages`: each message with its own id, timestamp, attempts and due time. For archives.

The record has the header that `records` describes, with these meanings:

    length      of the body as it is stored
    kind        2
    flags       1: the body is zstd-compressed   2: the body has a column of due times
    first_seq   number of the first message in its file, from 0
    base_id     the latest timestamp of its messages
    timestamp   the earliest timestamp of its messages
    due         the earliest due time of its messages; 0 where one may be delivered at once
    count       n, the number of messages
    stride      length of the body before it was compressed

So a reader can skip a record outside its range of time by the header alone. The checksum covers the body as it is
stored. The body holds columns, not rows, so that reading takes few calls however many messages there are. The columns
are little-endian and follow each other:

    topic length u8, channel length u8, nsqd length u16; topic, channel, nsqd (host:port of its TCP side)
    timestamps  n x i64    ns since the epoch
    due times   n x i64    ns since the epoch, 0: at once; only with flag 2
    sizes       n x u32    of the bodies
    attempts    n x u16
    ids         n x 16 bytes
    bodies      each preceded by its size as a big-endian u32

So the bodies are stored as an MPUB sends them: publishing a whole record again copies one range of bytes.

Files begin with the header of `records.FileHeader`. `records.next_record` finds the first record behind any offset, so a
file can be split between workers: each takes the records that begin in its part.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from struct import Struct
from typing import Literal, Self

import cramjam

from nsqd_py.diskqueue import records
from nsqd_py.protocol.batch import SIZE_BYTES, Batch
from nsqd_py.protocol.frames import hex_ids

FLAG_DUE = 2
ID_BYTES = 16
_KNOWN_FLAGS = records.FLAG_ZSTD | FLAG_DUE
_NAME_LENGTHS = Struct("<BBH")
_MPUB_SIZE = Struct(">I")

_Code = Literal["q", "I", "H"]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one topic and channel that came from one nsqd, in columns of equal length.

    timestamps_ns  time of each publish, since the epoch
    ids            16 bytes each
    due_ns         earliest delivery of each, since the epoch; None: all at once
    """

    topic: str
    channel: str
    nsqd: str
    timestamps_ns: Sequence[int]
    attempts: Sequence[int]
    ids: Sequence[bytes]
    bodies: Sequence[bytes]
    due_ns: Sequence[int] | None = None

    @classmethod
    def of_batch(cls, batch: Batch, topic: str, nsqd: str = "") -> Self:
        """Return the messages of a batch as it was published: without a channel, after no attempt."""
        count = batch.count
        timestamps_ns = [batch.timestamp_ns] * count
        attempts = [0] * count
        ids = hex_ids(batch.base_id, count)
        bodies = list(map(batch.message, range(count)))
        return cls(topic, "", nsqd, timestamps_ns, attempts, ids, bodies)

    def __len__(self) -> int:
        return len(self.bodies)


def encode_messages(messages: Messages, first_seq: int, salt: int, zstd_level: int | None = None) -> bytes:
    """Return a record of at least one message; `zstd_level` None leaves it uncompressed."""
    body = b"".join(_columns(messages))
    length = len(body)
    flags = 0 if messages.due_ns is None else FLAG_DUE
    if zstd_level is not None:
        body = bytes(cramjam.zstd.compress(body, zstd_level))
        flags |= records.FLAG_ZSTD
    latest_ns = max(0, max(messages.timestamps_ns))
    earliest_ns = min(messages.timestamps_ns)
    due_ns = min(messages.due_ns or [0])
    fields = (first_seq, latest_ns, earliest_ns, due_ns, len(messages), length)
    return records.encode_fields(body, salt, records.MESSAGES, flags, *fields)


def _columns(messages: Messages) -> Iterator[bytes]:
    names = [name.encode() for name in (messages.topic, messages.channel, messages.nsqd)]
    yield _NAME_LENGTHS.pack(*map(len, names))
    yield from names
    yield _packed("q", messages.timestamps_ns)
    if messages.due_ns is not None:
        yield _packed("q", messages.due_ns)
    yield _packed("I", map(len, messages.bodies))
    yield _packed("H", messages.attempts)
    yield from messages.ids
    sizes = map(_MPUB_SIZE.pack, map(len, messages.bodies))
    yield from chain.from_iterable(zip(sizes, messages.bodies, strict=True))


def _packed(code: _Code, values: Iterable[int]) -> bytes:
    column = array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def decode_messages(data: records.Data, position: int, salt: int) -> tuple[Messages, int]:
    """Return the messages of the record at `position`, and the position of the next. Raises Incomplete and Damaged."""
    header = records.checked_header(data, position, salt)
    after = position + header.record_bytes
    if header.kind != records.MESSAGES or header.flags & ~_KNOWN_FLAGS:
        raise records.Damaged("a record of another kind")
    body = data[position + records.RECORD_HEADER_BYTES : after]
    if header.flags & records.FLAG_ZSTD:
        body = _decompressed(body, header.stride)
    try:
        return _from_columns(body, header.count, has_due=bool(header.flags & FLAG_DUE)), after
    except (ValueError, UnicodeDecodeError) as error:
        raise records.Damaged(f"the columns of a record do not fit its header: {error}") from error


def _decompressed(body: bytes, length: int) -> bytes:
    buffer = bytearray(length)
    try:
        size = cramjam.zstd.decompress_into(body, buffer)
    except cramjam.DecompressionError as error:
        raise records.Damaged(f"the body cannot be decompressed: {error}") from error
    if size != length:
        raise records.Damaged("the body has another length than its header says")
    return bytes(buffer)


def _from_columns(body: bytes, count: int, *, has_due: bool) -> Messages:
    """Read the columns of a body in order. Raises ValueError if it is too short."""
    position = 0

    def take(size: int) -> bytes:
        nonlocal position
        piece = body[position : position + size]
        if len(piece) != size:
            raise ValueError("it is too short")
        position += size
        return piece

    def numbers(code: _Code) -> Sequence[int]:
        column = array(code)
        column.frombytes(take(count * column.itemsize))
        if sys.byteorder == "big":
            column.byteswap()
        return column

    lengths = _NAME_LENGTHS.unpack(take(_NAME_LENGTHS.size))
    topic, channel, nsqd = (take(length).decode() for length in lengths)
    timestamps_ns = numbers("q")
    due_ns = numbers("q") if has_due else None
    sizes = numbers("I")
    attempts = numbers("H")
    block = take(count * ID_BYTES)
    ids = [block[start : start + ID_BYTES] for start in range(0, len(block), ID_BYTES)]
    ends = list(accumulate(size + SIZE_BYTES for size in sizes))
    block = take(ends[-1])
    bodies = [block[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return Messages(topic, channel, nsqd, timestamps_ns, attempts, ids, bodies, due_ns)


def record_positions(data: records.Data, start: int, salt: int) -> Iterator[tuple[int, records.RecordHeader]]:
    """Yield position and header of each record from `start` on; damage is skipped."""
    position: int | None = start
    while position is not None and position < len(data):
        try:
            header = records.checked_header(data, position, salt)
        except (records.Damaged, records.Incomplete):
            position = records.next_record(data, position + 1, salt)
            continue
        yield position, header
        position += header.record_bytes
